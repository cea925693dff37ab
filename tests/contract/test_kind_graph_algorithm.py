"""Every case of kind "graph algorithm" that a method declares keeps the contract of its kind."""

KIND = "graph algorithm"


def test_contract(kind_check):
    kind_check()
