/* src/guard/preload_end.h
 * Python that tells the guard of an exception that ended the program, and how the program of a rank ended, for ended.c.
 * Part of the module `_xlane`, see preload_function.h. A program that is no rank tells it in an atexit handler. A rank
 * that raised does not end by itself: JAX's shutdown, in its atexit handlers, waits for the other ranks, and those wait
 * for it in a collective.
 *
 * threading._shutdown is what the interpreter calls first when the program is over, before any atexit handler. An
 * exception has ended the program if it left the outermost frame and that frame ran no further, or raised it again
 * (sys.last_value is also set by those who only print one). Of sys.exit nothing is left by then, so its exception
 * carries a mark that is dropped with it: by the interpreter, beneath no frame, if nobody caught it. Both are left as
 * they are in a program that never calls jax.distributed.initialize(), or is its only process. */
#ifndef XL_GUARD_PRELOAD_END_H
#define XL_GUARD_PRELOAD_END_H

static const char guard_preload_end[] =
    "exec(compile('''\n"
    "import threading\n"
    "ended = []\n" /* [status, words, where] once the program has failed; [] when it has not ended or ended well */
    "over = [False]\n"
    "forked = []\n" /* from a rank: a process that is none itself */
    "class Mark:\n"
    "    def __init__(self, code): self.code = code\n"
    "    def __reduce__(self): return type(None), ()\n"
    "    def __del__(self):\n"
    "        if sys is None or sys._getframe().f_back is not None or self.code is None: return\n"
    "        status = self.code & 255 if isinstance(self.code, int) else 1\n"
    "        if status and threading.current_thread() is threading.main_thread():\n"
    "            ended[:] = status, 'sys.exit(%s)' % repr(self.code)[:100], ''\n"
    "def mark_exits():\n"
    "    real = sys.exit\n"
    "    def exit(*args):\n"
    "        try: real(*args)\n"
    "        except SystemExit as e:\n"
    "            e._xlane = Mark(e.code)\n"
    "            raise\n"
    "    functools.update_wrapper(exit, real)\n"
    "    sys.exit = exit\n"
    "def uncaught(e):\n"
    "    at = getattr(e, '__traceback__', None)\n"
    "    if at is None or at.tb_frame.f_back is not None: return False\n"
    "    f = at.tb_frame\n"
    "    return f.f_lasti == at.tb_lasti or f.f_code.co_code[f.f_lasti] == "
    "__import__('opcode').opmap.get('RERAISE')\n" /* at the end of a finally: */
    "def last(): return getattr(sys, 'last_exc', None) or getattr(sys, 'last_value', None)\n"
    "def generated(f): return f.f_code.co_filename[:1] == '<' and f.f_globals.get('__name__') != '__main__'\n"
    "def failure(e):\n" /* where: the innermost line of the user's own */
    "    lines, where, at = str(e).strip().splitlines() or [''], '', e.__traceback__\n"
    "    while at is not None:\n"
    "        path = at.tb_frame.f_code.co_filename\n"
    "        if not generated(at.tb_frame) and not library(path): where = '%s:%d' % (path, at.tb_lineno)\n"
    "        at = at.tb_next\n"
    "    words = type(e).__name__ + (': ' if lines[0] else '') + lines[0]\n"
    "    if len(words) > 200: words = (words[:196].rsplit(' ', 1)[0] if ' ' in words[100:196] else words[:196]) + ' "
    "...'\n"
    "    return 130 if isinstance(e, KeyboardInterrupt) else 1, words, where\n"
    "def tell(stage, process, of, status, words, where):\n"
    "    import ctypes\n"
    "    told = ctypes.PyDLL(os.environ['XLANE_GUARD_LIBRARY'], os.RTLD_NOW).xlane_guard_ended\n"
    "    words, where = (s.encode(errors='replace') for s in (words, where))\n"
    "    told(stage, process, of, status, words, where, int(over[0]))\n"
    "def end_alone():\n" /* what over tells of is told already */
    "    try:\n"
    "        if over[0] or os.environ.get('XLANE_GUARD') == 'off' or not uncaught(last()): return\n"
    "        tell(0, 0, 1, *failure(last()))\n"
    "    except Exception: pass\n"
    "__import__('atexit').register(end_alone)\n"
    "def tell_end(stage):\n"
    "    state = sys.modules['jax._src.distributed'].global_state\n"
    "    if state.client is None and stage < 2 or (state.num_processes or 1) < 2 or forked: return\n"
    "    tell(stage, state.process_id, state.num_processes, *(ended or (0, '', '')))\n"
    "def watch_end():\n"
    "    real = threading._shutdown\n"
    "    def _shutdown():\n"
    "        try:\n"
    "            over[0] = True\n"
    "            if not ended and uncaught(last()): ended[:] = failure(last())\n"
    "            if ended: tell_end(0)\n"
    "        except Exception: pass\n"
    "        return real()\n"
    "    threading._shutdown = _shutdown\n"
    "    mark_exits()\n"
    "def distributed(module):\n"
    "    if os.environ.get('XLANE_GUARD') == 'off': return\n"
    "    real = module.State.shutdown\n"
    "    def shutdown(self):\n"
    "        try:\n"
    "            for f in sys.stdout, sys.stderr: f.flush()\n"
    "        except Exception: pass\n"
    "        try: tell_end(1)\n"
    "        except Exception: pass\n"
    "        try: return real(self)\n"
    "        finally:\n"
    "            try: tell_end(2)\n"
    "            except Exception: pass\n"
    "    module.State.shutdown = shutdown\n"
    "    begin, watched = module.State.initialize, []\n"
    "    def initialize(self, *args, **more):\n"
    "        out = begin(self, *args, **more)\n"
    "        try:\n"
    "            if (self.num_processes or 1) > 1 and not watched:\n"
    "                watched.append(1)\n"
    "                os.register_at_fork(after_in_child=lambda: forked.append(1))\n"
    "                watch_end()\n"
    "        except Exception: pass\n"
    "        return out\n"
    "    module.State.initialize = functools.wraps(begin)(initialize)\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

#endif
