"""What the window knows, and what it remembers.

app_state  AppState: model, plans, run, trace, selection; one setter and one signal a fact
kept_run   what is kept of a run whose engine is gone
settings   Settings: theme, layout, recent files, the last prompt; bad values are dropped
option_changes  which options differ between two sets
option_memory  OptionMemory: the options each model had last
"""
