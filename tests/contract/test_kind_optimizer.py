"""Every case of kind "optimizer" that a method declares keeps the contract of its kind."""

KIND = "optimizer"


def test_contract(kind_check):
    kind_check()
