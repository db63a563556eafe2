"""What the window knows: one object, one setter and one signal a fact.

app_state  AppState: model, plans, run, trace, selection
"""
