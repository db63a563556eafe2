"""The frame of the window: what stands around the panes, and who carries wishes to the engine.

From the engine to the screen:
controller       Controller: routes answers, restarts the engine, says what happened
planning         Planning: open, plan again, changes with undo, difference mode
running          Running: run, stop, export; text and spans as they come
backends         Backends: load and unload, again after the engine ended, and at every start
checking         Checking: the open model's operations on every device
first_selection  what is selected when a model opens

From facts to words, pure:
markup           the small markup of clauses, as HTML and as plain text
answer_text      the answer under the toolbar
together_text    what several devices did, for the answer
change_text      the change bar
backend_text     what is said of backends that were loaded, were not, or were taken out
messages         Message, and the messages of what can happen
status_text      the facts in the status bar

On the screen:
main_window      MainWindow: what stands where, and what follows what
window_commands  WindowCommands: what every command does
panes            the table of docks; PaneDock: tabs or a title, one grey fact
dock_area        DockArea: the graph and the docks around it
tab_order        where Tab goes: pane after pane
toolbar          Toolbar: Run, Stop, -ngl, ctx, op_offload, batch
context_box      ContextBox: how many tokens the model can look back on
answer_bar       AnswerBar
clause_label     ClauseLabel: a sentence that gives way clause by clause
bars             messages and the change bar
welcome          WelcomePage: open, demo, recent, devices
devices_page     DevicesPage: devices and load report while no plan is shown
tensor_page      TensorPage: what a file holds that cannot be planned
run_panel        RunPanel: prompt, text or embedding, speed
embedding_result  EmbeddingResult: what an encoder gave, copied or saved
status           StatusBar
file_dialog      FileDialog: asks for a file and looks at names only
help_window      HelpWindow: the manual and the key sheet
screenshot       Screenshot: a picture of the window
exception_log    ExceptionLog: an unhandled exception becomes a message
"""
