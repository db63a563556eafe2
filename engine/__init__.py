"""Splitscope's engine, usable alone: `python -m engine`. The map, in the order data flows.

engine.gguf.reader.open_gguf                  a GGUF file: header read, data mapped
engine.model.hparams.Hparams                  the numbers of a model
engine.model.placement.place_model            devices, layers, buffer types
engine.model.planning.make_planner            the planner of one model and one set of options
engine.model.arch.ARCHITECTURES               architectures that have a graph
engine.sched.planner.plan_graph               the passes, the run graph: one frozen Plan
engine.sched.split_graph.split_graph          the passes, every state kept
engine.backend.alloc.plan_allocation          offsets, reuse
engine.core.table.table_of                    a plan as columns
engine.core.explain.explain                   a cause as a sentence
engine.core.diff.diff_sets                    what a change of options changed
engine.backend.interface                      the contract of backends
engine.backend.registry.Registry              backends and devices of this machine
engine.backends.BUILTIN                       the backends that come with Splitscope
engine.backends.meta.device.join_devices      several devices as one, each with its share
engine.model.context.ModelContext             a loaded model that computes batches
engine.sched.scheduler.Scheduler              buffers for plans, and their execution
engine.sched.execute.SplitRunner              wait, copy, compute, record
engine.trace.recorder.Recorder                what was measured
engine.trace.metrics                          where a step's time went, statistics
engine.trace.export.perfetto                  the default trace file
engine.text.tokenizer.Tokenizer               text to tokens and back
engine.report                                 what a session says of models and runs
engine.opcheck.check.check_ops                single operations on devices, against a reference
engine.machine.Machine                        devices of this computer, or on paper
engine.planning.Planning                      the open model and its plans
engine.stopping.StopSwitch                    whom a wish to stop concerns
engine.running.Running                        a model on its devices: load, run, score, export
engine.predicting.predict                     a run on devices on paper, in virtual time
engine.session.Session                        both: open, plan, run
engine.service.serve                          the engine in its own process
engine.cli                                    the command line twin of the window
engine.starting.ending_quietly                Ctrl-C while a program is imported
engine.paths                                  where things lie
engine.errors                                 what can go wrong
"""
