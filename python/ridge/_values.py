"""Values of Ridge's JSON as those of Python."""


def with_arrays(value):
    """The same with an array in place of each list of numbers; null among them is NaN."""
    if isinstance(value, dict):
        return {name: with_arrays(member) for name, member in value.items()}
    if not isinstance(value, list):
        return value
    kinds = {type(member) for member in value}
    if kinds & {int, float} and kinds <= {int, float, type(None)}:
        import numpy  # here, since the command `ridge` needs none

        return numpy.array([float("nan") if member is None else member for member in value])
    return [with_arrays(member) for member in value]
