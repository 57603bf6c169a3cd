"""The partitions of the lineage: sources, cells of the ladder, vocabularies, checkpoints to evaluate. All come from the profile."""

import dagster as dg

from assets.profile import active_profile

PROFILE = active_profile()

SOURCES = dg.StaticPartitionsDefinition(sorted(PROFILE.sources))
CELLS = dg.StaticPartitionsDefinition(sorted(PROFILE.ladder))
VOCABULARIES = dg.StaticPartitionsDefinition(sorted(PROFILE.vocabularies))
CHECKPOINTS = dg.StaticPartitionsDefinition(["cooldown", "hero"])
