"""Every case of kind "torch module" that a method declares keeps the contract of its kind."""

KIND = "torch module"


def test_contract(kind_check):
    kind_check()
