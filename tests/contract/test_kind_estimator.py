"""Every case of kind "estimator" that a method declares keeps the contract of its kind."""

KIND = "estimator"


def test_contract(kind_check):
    kind_check()
