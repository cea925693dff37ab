"""Every case of kind "calculator" that a method declares keeps the contract of its kind."""

KIND = "calculator"


def test_contract(kind_check):
    kind_check()
