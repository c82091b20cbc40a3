/* src/guard/preload_function.h
 * Python that tells the guard which function of a JAX program is about to be compiled (function.c): the module `_xlane`
 * of a guarded process, which preload_jax.h puts to work. Whatever goes wrong in it, JAX is as it was.
 *
 * `who` walks up to the frame of jax.jit, whose `fun` is the function, and looks through wrappers (jax.grad, partial,
 * shard_map, a method) for the first code that is the user's own; a library's function has no answer. It is
 * "PATH:LINE", the function's first line. Functions that a factory makes share that: each that is alive beside the
 * others gets a number, "#2". One that is gone leaves its number to the next of the same code, so a function that is
 * jitted anew in each iteration of a loop stays one function, and two lambdas on one line are two. ".forward",
 * ".backward": outside of jit, JAX differentiates a jitted function in programs under its name.
 *
 * `own` says of a library's function that the library jitted it and not the user: the name that it has in its module is
 * not the function but what jax.jit made of it, or in JAX itself (single ops have no name there) anything else. */
#ifndef XL_GUARD_PRELOAD_FUNCTION_H
#define XL_GUARD_PRELOAD_FUNCTION_H

static const char guard_preload_function[] =
    "exec(compile('''\n"
    "import functools, os, sys, types, weakref\n"
    "functions, uses, stdlib = {}, [0], (types.__file__.rpartition('/')[0] + '/', '<frozen')\n"
    "roles = {'linearize': '.forward', 'partial_eval': '.forward', 'transpose': '.backward', 'batch': '.batched'}\n"
    "def who():\n"
    "    f, fun, info, role = sys._getframe(1), None, None, ''\n"
    "    for _ in range(100):\n"
    "        if f is None: break\n"
    "        name, path = f.f_code.co_name, f.f_code.co_filename\n"
    "        if name == 'cache_miss' and '/jax/_src/' in path:\n"
    "            fun = f.f_locals.get('fun')\n"
    "            break\n"
    "        if name.startswith('_pjit_') and not role:\n"
    "            role = next((r for k, r in roles.items() if k in name), '')\n"
    "        if name == 'from_hlo' and info is None:\n"
    "            info = f.f_locals.get('all_args_info')\n"
    "        f = f.f_back\n"
    "    if own(fun): return None, ''\n"
    "    way, at = codes(fun)\n"
    "    text = getattr(getattr(info, 'debug_info', None), 'func_src_info', None) or ''\n"
    "    path, _, line = text.partition(' at ')[2].rpartition(':')\n"
    "    if path and line.isdigit() and (path, int(line)) not in map(begins, way):\n" /* that frame is another
                                                                                         function's */
    "        fun, way, at = None, [], None if library(path) else (path, int(line))\n"
    "    if at is None: return '', ''\n"
    "    known = functions.setdefault((at, role), [])\n"
    "    alive = [i for i, k in enumerate(known) if fun is not None and k[0]() is fun]\n"
    "    free = [i for i, k in enumerate(known) if k[0]() is None and k[1] == way]\n"
    "    uses[0] += 1\n"
    "    try: ref = weakref.ref(fun)\n"
    "    except TypeError: ref = type(None)\n" /* it cannot be watched */
    "    entry = ref, way, uses[0]\n"
    "    if alive: n = alive[0]\n"
    "    elif free: n = max(free, key=lambda i: known[i][2])\n"
    "    elif fun is None and known: n = 0\n"
    "    else:\n"                             /* other threads may do the same at this moment: each has its own place */
    "        known.append(entry)\n"
    "        n = [k is entry for k in known].index(True)\n"
    "    known[n] = entry\n"
    "    name = '_lambda' if way and way[-1].co_name == '<lambda>' else way[-1].co_name if way else ''\n"
    "    return '%s:%d' % at + ('#%d' % (n + 1) if n else '') + role, name\n"
    "def own(fun):\n"
    "    if type(fun) is not types.FunctionType or not library(fun.__code__.co_filename): return False\n"
    "    home = sys.modules.get(str(fun.__module__))\n"
    "    for part in fun.__qualname__.split('.'): home = getattr(home, part, None)\n"
    "    jax = str(fun.__module__).startswith('jax._src.') and '<locals>' not in fun.__qualname__\n"
    "    return home is not fun and (jax or getattr(home, '__wrapped__', None) is fun)\n"
    "def begins(code): return code.co_filename, code.co_firstlineno\n"
    "def library(path):\n"
    "    return any(k in path for k in ('/site-packages/', '/dist-packages/', '/jax/_src/')) or "
    "path.startswith(stdlib)\n"
    "def codes(fun):\n" /* the codes on the way to the user's, and where that is */
    "    todo, met, way = [fun], set(), []\n"
    "    while todo and len(met) < 64:\n"
    "        f = todo.pop(0)\n"
    "        if id(f) in met: continue\n"
    "        met.add(id(f))\n"
    "        if type(f) is types.MethodType: todo.append(f.__func__)\n"
    "        elif type(f) is functools.partial: todo.append(f.func)\n"
    "        elif type(f) is types.FunctionType:\n"
    "            way.append(f.__code__)\n"
    "            at = begins(f.__code__)\n"
    "            if not library(at[0]): return way, at\n"
    "            todo.append(f.__dict__.get('__wrapped__'))\n"
    "            for cell in f.__closure__ or ():\n"
    "                try: todo.append(cell.cell_contents)\n"
    "                except ValueError: pass\n"
    "        elif type(f).__name__ == 'PjitFunction': todo.append(getattr(f, '__wrapped__', None))\n"
    "        elif type(f).__name__ == 'WrappedFun': todo.append(getattr(f, 'f', None))\n" /* pmap's */
    "        elif type(getattr(type(f), '__call__', None)) is types.FunctionType: todo.append(type(f).__call__)\n"
    "    return way, None\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules.setdefault('_xlane',\n"
    "    __import__('types').ModuleType('_xlane')).__dict__)\n";

static const char guard_preload_compiler[] =
    "exec(compile('''\n"
    "def guard():\n"
    "    import ctypes, os\n"
    "    return ctypes.PyDLL(os.environ['XLANE_GUARD_LIBRARY'], os.RTLD_NOLOAD | os.RTLD_NOW)\n"
    "def settings(config):\n" /* those that JAX looks its programs up by */
    "    states, words = getattr(config, 'config_states', {}), []\n"
    "    try: names = config.config_ext.trace_context_names()\n"
    "    except Exception: names = ['jax_' + n for n in ('enable_x64', 'numpy_dtype_promotion', "
    "'default_matmul_precision',\n"
    "                               'numpy_rank_promotion', 'threefry_partitionable', 'softmax_custom_jvp')]\n"
    "    for n in filter(states.__contains__, names):\n"
    "        value = states[n].value\n"
    "        words.append('%s=%s' % (n, '_'.join(str(getattr(value, 'value', value)).split())[:60]))\n"
    "    return ' '.join(words)\n"
    "def searches(config):\n" /* JAX has met a NaN and looks for the op that made it */
    "    if not (config.debug_nans.value or config.debug_infs.value): return False\n"
    "    f = sys._getframe(1)\n"
    "    while f is not None and 'nan_check' not in f.f_code.co_name: f = f.f_back\n"
    "    return f is not None\n"
    "def dispatch(module):\n" /* reads for that search are none of the user's */
    "    real = module._check_special\n"
    "    def _check_special(*args, **more):\n"
    "        tell = lambda change: None\n"
    "        try: tell = guard().xlane_guard_checks\n"
    "        except Exception: pass\n"
    "        tell(1)\n"
    "        try: return real(*args, **more)\n"
    "        finally: tell(-1)\n"
    "    module._check_special = _check_special\n"
    "def compiler(module):\n"
    "    real = module.compile_or_get_cached\n"
    "    def compile_or_get_cached(backend, computation, *args, **more):\n"
    "        number = 0\n"
    "        try:\n"
    "            tell, (function, own_name) = guard().xlane_guard_function, who()\n"
    "            name = str(computation.operation.attributes['sym_name']).strip(chr(34))\n"
    "            x64 = getattr(getattr(config, 'enable_x64', None), 'value', None)\n"
    "            owner = (3 if searches(config) else 2) if function is None else 1 if function else 0\n"
    "            if name != 'jit__fun' and (own_name.rstrip('_') == own_name or 'jit_' + own_name.rstrip('_') != "
    "name):\n"
    "                own_name = ''\n" /* of pmap's each is called so, and JAX cuts underscores off the end */
    "            number = tell(name.encode(), (function or '').encode(), own_name.encode(), "
    "settings(config).encode(),\n"
    "                          0 if x64 is None else 1 + bool(x64), owner)\n"
    "        except Exception: pass\n"
    "        try: return real(backend, computation, *args, **more)\n"
    "        finally:\n"
    "            if number: tell(None, None, None, None, number, 0)\n"
    "    module.compile_or_get_cached = compile_or_get_cached\n"
    "    from jax._src import config, traceback_util\n"
    "    traceback_util.register_exclusion('<xlane>')\n" /* what JAX leaves out of the user's tracebacks */
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

#endif
