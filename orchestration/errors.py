"""What a command of `seaway` can fail with and a person can act on: printed as one sentence, never as a traceback."""


class CommandError(RuntimeError):
    """Base of a command's own failures. The message says what, where, and what to do."""


class DemoFailedError(CommandError):
    """A run of the lineage failed."""


class ReplayDiffersError(CommandError):
    """A rebuilt artifact has other bytes than the published one."""


class UnknownNodeError(CommandError):
    """The lineage has no such asset, or the asset no such partition."""


class UntraceableError(CommandError):
    """What is to be traced is not among what is published."""


class UnusableCatalogError(CommandError):
    """The catalog's database can't be opened."""


class UnusableInstanceError(CommandError):
    """Dagster's own storage can't be opened, or is another one than the profile's."""


class UnwellError(CommandError):
    """At least one of the doctor's checks failed."""
