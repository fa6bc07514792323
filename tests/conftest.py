"""What every test stands on."""

from hypothesis import settings

# How long one example takes is the machine's affair: a busy one must not fail a property that holds.
settings.register_profile("tierkeeper", deadline=None)
settings.load_profile("tierkeeper")
