"""Every case of kind "online learner" that a method declares keeps the contract of its kind."""

KIND = "online learner"


def test_contract(kind_check):
    kind_check()
