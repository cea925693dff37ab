"""Every case of kind "acquisition" that a method declares keeps the contract of its kind."""

KIND = "acquisition"


def test_contract(kind_check):
    kind_check()
