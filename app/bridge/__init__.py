"""The engine's process: how it is started, watched, restarted, and heard.

engine_host  EngineHost: the child process, its pipe and its threads; no Qt objects
bridge       Bridge: its answers as one Qt signal, and the timer that asks for spans
"""
