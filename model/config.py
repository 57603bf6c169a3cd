"""The learner, declared once: architecture, optimizer, schedule, runs. Imports nothing heavy."""
