"""Names of the views that clusters have: by how many clusters there are in each."""

PREFIX = "cluster_"


def view_of(clusters: int) -> str:
    """The view of so many clusters."""
    return f"{PREFIX}{clusters}"


def clusters_in(view: str) -> int:
    """How many clusters a view has."""
    return int(view.removeprefix(PREFIX))
