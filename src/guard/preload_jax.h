/* src/guard/preload_jax.h
 * Python that runs in a guarded process as soon as jaxlib's module is looked up; preload_main.c hands it to the
 * interpreter. The modules that it concerns are imported later, so it waits for them. Whatever goes wrong in it, JAX is
 * as it was.
 *
 * jax._src.clusters.cluster: the ranks of `xlane run -n` become a cluster that JAX detects, so that
 * jax.distributed.initialize() needs no arguments. As under JAX's other launchers a rank has one GPU, where it has not
 * been given one already.
 * jax._src.xla_bridge: the embedded device is not announced as an experimental platform. If the program asks JAX for
 * several devices of the CPU (jax_num_cpu_devices, or the flag in XLA_FLAGS) before the first client is made, the
 * embedded device shows as many, where XLANE_CPU_DEVICES says no other number. If JAX takes its built-in CPU backend,
 * which no guard sees, that is said when it happens and not only at the end of the run. At the end of a distributed
 * program JAX closes its coordination service while its client still watches it, and warns of the closed connection:
 * once the program is over, only errors are logged.
 * jax._src.compiler, jax._src.dispatch, jax._src.array: see preload_function.h. jax._src.distributed: see
 * preload_end.h. */
#ifndef XL_GUARD_PRELOAD_JAX_H
#define XL_GUARD_PRELOAD_JAX_H

static const char guard_preload_started[] =
    "exec(compile('''\n"
    "def started(name):\n" /* as this process was: the program may have changed it since */
    "    try:\n"
    "        with open('/proc/self/environ', 'rb') as f: pairs = f.read().split(bytes(1))\n"
    "    except OSError: return os.environ.get(name, '')\n"
    "    return next((p.partition(b'=')[2].decode() for p in pairs if p.startswith(name.encode() + b'=')), '')\n"
    "def asked(module):\n" /* several devices of the CPU: who asks for them means those of the embedded one */
    "    n = getattr(getattr(module, 'num_cpu_devices', None), 'value', -1)\n"
    "    if type(n) is int and n >= 0: return n, 'jax_num_cpu_devices'\n"
    "    flag = '--xla_force_host_platform_device_count='\n"
    "    given = [w[len(flag):] for w in os.environ.get('XLA_FLAGS', '').split() if w.startswith(flag)]\n"
    "    return int(given[-1]) if given and given[-1].isdecimal() else -1, 'XLA_FLAGS'\n"
    "def count_devices(module):\n" /* before the client is made: the device reads its environment then */
    "    if os.environ.get('XLANE_CPU_DEVICES') or module.backends_are_initialized(): return\n"
    "    wanted = module.config.jax_platforms.value\n"
    "    named = os.environ.get('PJRT_NAMES_AND_LIBRARY_PATHS', '').startswith('xlane:')\n"
    "    if wanted.split(',')[0] != 'xlane' if wanted else not named: return\n"
    "    n, by = asked(module)\n"
    "    if not 2 <= n <= 4096: return\n"
    "    os.environ['XLANE_CPU_DEVICES'] = str(n)\n"
    "    if os.environ.get('XLANE_RANK', '0') == '0':\n"
    "        print('xlane: the embedded device shows %d devices, since %s asks for as many of the CPU '\n"
    "              '(XLANE_CPU_DEVICES is another way to say it)' % (n, by), file=sys.stderr, flush=True)\n"
    "''', '<xlane>', 'exec'), __import__('sys').modules['_xlane'].__dict__)\n";

static const char guard_preload_jax[] =
    "exec(compile('''\n"
    "import os, sys\n"
    "from _xlane import array, compiler, count_devices, dispatch, distributed, started\n"
    "launched = started('JAX_PLATFORMS')\n"
    "def cluster(module):\n"
    "    class Ranks(module.ClusterEnv):\n"
    "        name = 'xlane'\n"
    "        @classmethod\n"
    "        def is_env_present(cls):\n"
    "            return all(os.environ.get('XLANE_' + k) for k in ('RANK', 'RANKS', 'COORDINATOR'))\n"
    "        @classmethod\n"
    "        def get_coordinator_address(cls, *_, **__): return os.environ['XLANE_COORDINATOR']\n"
    "        @classmethod\n"
    "        def get_process_count(cls): return int(os.environ['XLANE_RANKS'])\n"
    "        @classmethod\n"
    "        def get_process_id(cls): return int(os.environ['XLANE_RANK'])\n"
    "        @classmethod\n"
    "        def get_local_process_id(cls):\n"
    "            given = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
    "            return None if given and ',' not in given else int(os.environ['XLANE_RANK'])\n"
    "    module.ClusterEnv._cluster_types.remove(Ranks)\n"
    "    module.ClusterEnv._cluster_types.insert(0, Ranks)\n"
    "def quiet():\n"
    "    from jax._src.lib import utils\n"
    "    utils.absl_set_min_log_level(2)\n"
    "def note():\n" /* an event, so that the end of the run need not guess */
    "    import json, time\n"
    "    try:\n"
    "        t = time.time() - float(os.environ['XLANE_RUN_BEGAN'].split()[0])\n"
    "        with open(os.environ['XLANE_RUN'] + '/events.jsonl', 'a') as f:\n"
    "            f.write(json.dumps({'t': round(t, 6), 'rank': 0, 'pid': os.getpid(), 'event': 'unguarded',\n"
    "                                'text': 'JAX took its built-in cpu backend'}) + chr(10))\n"
    "    except (KeyError, ValueError, OSError):\n"
    "        pass\n"
    "def bridge(module):\n"
    "    module._nonexperimental_plugins.add('xlane')\n"
    "    real = module.backends\n"
    "    def backends():\n"
    "        try: count_devices(module)\n"
    "        except Exception: pass\n"
    "        out = real()\n"
    "        if module.backends is backends:\n"
    "            module.backends = real\n"
    "            if module._default_backend.platform == 'xlane' and module.distributed.global_state.client:\n"
    "                import atexit\n"
    "                atexit.register(quiet)\n"
    "            if module._default_backend.platform == 'cpu' and os.environ.get('XLANE_GUARD') != 'off' \\\n"
    "                    and os.environ.get('XLANE_RANK', '0') == '0':\n"
    "                first = launched.split(',')[0]\n"
    "                if first in ('cuda', 'rocm', 'gpu'): why = ', since it found no GPU (%s)' % launched\n"
    "                elif first not in ('', 'cpu'): why = ', as the program chose it itself over %s' % launched\n"
    "                else: why = ''\n"
    "                print('xlane: JAX took its built-in cpu backend%s; that is not a PJRT plugin, so its programs '\n"
    "                      'are neither recorded nor cached; %s' % (why, 'leave jax_platforms (or '\n"
    "                      'JAX_PLATFORMS) as it was launched'\n"
    "                      if why and 'chose' in why else '`xlane run --profile=cpu` takes the embedded CPU device'),\n"
    "                      file=sys.stderr, flush=True)\n"
    "                note()\n"
    "        return out\n"
    "    module.backends = backends\n"
    "class Finder:\n"
    "    wanted = {'jax._src.clusters.cluster': cluster, 'jax._src.xla_bridge': bridge,\n"
    "              'jax._src.compiler': compiler, 'jax._src.dispatch': dispatch, 'jax._src.distributed': distributed,\n"
    "              'jax._src.array': array}\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        change = self.wanted.pop(name, None)\n"
    "        if not change: return None\n"
    "        try:\n"
    "            import importlib.util\n"
    "            spec = importlib.util.find_spec(name)\n"
    "            load = spec.loader.exec_module\n"
    "            def exec_module(module):\n"
    "                load(module)\n"
    "                try: change(module)\n"
    "                except Exception: pass\n"
    "            spec.loader.exec_module = exec_module\n"
    "            return spec\n"
    "        except Exception: return None\n"
    "sys.meta_path.insert(0, Finder())\n"
    "''', '<xlane>', 'exec'), {})";

#endif
