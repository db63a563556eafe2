"""Every command once: the menus, the keys, the tooltips and the key sheet come from one table.

spec      ActionSpec, Need: what a command is and when it can be used
table     ACTIONS, MENUS: the commands and where they stand
actions   ActionSet: the QActions of the table, connected and kept enabled or disabled
keys      the key sheet as Markdown
"""
