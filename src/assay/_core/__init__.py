"""What all methods share: cards, errors, checks, seeds, devices, files, data, runs and reports.

Nothing here imports a field; importing a module of this package never imports torch or scikit-learn.
"""
