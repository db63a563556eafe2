"""Every command once: the menus, the keys, the tooltips and the key sheet come from one table.

spec      ActionSpec, Need: what a command is and when it can be used
table     ACTIONS, MENUS, PANE_KEYS: the commands, where they stand, and the keys of the panes
actions   ActionSet: the QActions of the table, connected and kept enabled or disabled
keys      the key sheet as Markdown
"""
