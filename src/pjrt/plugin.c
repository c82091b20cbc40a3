#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/word.h"
#include "pjrt/call.h"

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#else
#define THIS_MACHINE EM_NONE
#endif

static const struct { int number; const char *name; } machines[] = {
    { EM_386, "32-bit x86" }, { EM_X86_64, "x86-64" }, { EM_ARM, "32-bit ARM" }, { EM_AARCH64, "AArch64" },
    { EM_PPC64, "POWER" },    { EM_S390, "S/390" },    { EM_RISCV, "RISC-V" },
};

static const char *machine_name(int number)
{
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (machines[i].number == number)
            return machines[i].name;
    return "another machine";
}

static const char *file_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* How many bytes the file must have for its segments to be there; 0 where its headers are not to be trusted. A shorter
 * file would not make dlopen fail but kill the process with SIGBUS. */
static uint64_t bytes_wanted(int fd)
{
    Elf64_Ehdr head;
    uint64_t most = 0;
    if (pread(fd, &head, sizeof head, 0) != sizeof head || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(Elf64_Phdr))
        return 0;
    for (int i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr ph;
        uint64_t end = head.e_phoff + ((uint64_t)i + 1) * sizeof ph;
        if (pread(fd, &ph, sizeof ph, (off_t)(end - sizeof ph)) != sizeof ph)
            return end;
        if (ph.p_type == PT_LOAD && ph.p_offset + ph.p_filesz > most)
            most = ph.p_offset + ph.p_filesz;
    }
    return most;
}

xl_error *xl_plugin_inspect(const char *path)
{
    xl_error *err = NULL;
    unsigned char head[64] = { 0 };
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo named as a plugin must not hold us up */
    if (fd < 0) {
        err = errno == ENOENT || errno == ENOTDIR
                  ? XL_ERR(NOT_FOUND, "%s: no such file", path)
                  : XL_ERR(UNAVAILABLE, "%s: cannot be opened: %s", path, strerror(errno));
        goto out;
    }
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        err = XL_ERR(UNAVAILABLE, "%s: not a file but a folder or a device", path);
        goto out;
    }
    ssize_t n = read(fd, head, sizeof head);
    if (n < (ssize_t)sizeof head || memcmp(head, ELFMAG, SELFMAG)) {
        if (n > 0 && memcmp(head, ELFMAG, SELFMAG)) {
            char shown[33];
            size_t k = 0;
            for (; k < 32 && k < (size_t)n && head[k] != '\n'; k++)
                shown[k] = (char)(head[k] >= ' ' && head[k] < 127 ? head[k] : '.');
            shown[k] = 0;
            err = XL_ERR(UNAVAILABLE, "%s: not a shared library: it begins with \"%s\"", path, shown);
        } else {
            err = XL_ERR(UNAVAILABLE, "%s: not a shared library: it has only %lld bytes, the download was cut short",
                         path, (long long)st.st_size);
        }
        goto out;
    }
    int machine = head[EI_DATA] == ELFDATA2MSB ? head[18] << 8 | head[19] : head[18] | head[19] << 8;
    int type = head[EI_DATA] == ELFDATA2MSB ? head[16] << 8 | head[17] : head[16] | head[17] << 8;
    if (THIS_MACHINE != EM_NONE && machine != THIS_MACHINE) {
        err = XL_ERR(UNAVAILABLE, "%s: this file is for %s, this machine is %s", path, machine_name(machine),
                     machine_name(THIS_MACHINE));
        goto out;
    }
    uint64_t wanted = bytes_wanted(fd);
    if (type != ET_DYN)
        err = XL_ERR(UNAVAILABLE, "%s: an ELF file, but not a shared library", path);
    else if (wanted > (uint64_t)st.st_size)
        err = XL_ERR(UNAVAILABLE, "%s: the file is cut short: it has %lld bytes, its headers speak of %llu", path,
                     (long long)st.st_size, (unsigned long long)wanted);
out:
    if (fd >= 0)
        close(fd);
    return err;
}

bool xl_plugin_exports(xl_arena *a, const char *path)
{
    enum { NAMES_MAX = 1 << 26 };
    static const char name[] = "\0GetPjrtApi";             /* a whole name of the table, as its ends are both 0 */
    Elf64_Ehdr head;
    Elf64_Shdr at;
    bool known = false, found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && pread(fd, &head, sizeof head, 0) == sizeof head && !memcmp(head.e_ident, ELFMAG, SELFMAG) &&
        head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_shentsize == sizeof at && head.e_shoff)
        for (unsigned i = 0; i < head.e_shnum && !known; i++) {
            if (pread(fd, &at, sizeof at, (off_t)(head.e_shoff + (uint64_t)i * sizeof at)) != sizeof at)
                break;
            if (at.sh_type != SHT_DYNSYM || at.sh_link >= head.e_shnum ||
                pread(fd, &at, sizeof at, (off_t)(head.e_shoff + (uint64_t)at.sh_link * sizeof at)) != sizeof at ||
                at.sh_size > NAMES_MAX)
                continue;
            char *names = xl_new(a, char, at.sh_size + 1);
            known = pread(fd, names, at.sh_size, (off_t)at.sh_offset) == (ssize_t)at.sh_size;
            found = memmem(names, at.sh_size, name, sizeof name) != NULL;
        }
    if (fd >= 0)
        close(fd);
    return found || !known;
}

/* The note lies in a PT_NOTE segment: {name size, description size, type 3, "GNU\0", id}. Whatever does not fit is
 * "none". */
xl_str xl_plugin_build_id(xl_arena *a, const char *path)
{
    xl_buf hex = { 0 };
    Elf64_Ehdr head;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || pread(fd, &head, sizeof head, 0) != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(Elf64_Phdr))
        goto out;
    for (int i = 0; i < head.e_phnum && !hex.n; i++) {
        Elf64_Phdr ph;
        unsigned char note[4096];
        if (pread(fd, &ph, sizeof ph, (off_t)(head.e_phoff + (uint64_t)i * sizeof ph)) != sizeof ph)
            break;
        if (ph.p_type != PT_NOTE)
            continue;
        ssize_t got =
            pread(fd, note, ph.p_filesz < sizeof note ? (size_t)ph.p_filesz : sizeof note, (off_t)ph.p_offset);
        for (size_t at = 0; got > 0 && at + 12 <= (size_t)got && !hex.n;) {
            uint32_t name, desc, type;
            memcpy(&name, note + at, 4);
            memcpy(&desc, note + at + 4, 4);
            memcpy(&type, note + at + 8, 4);
            size_t body = at + 12 + (((size_t)name + 3) & ~(size_t)3), next = body + (((size_t)desc + 3) & ~(size_t)3);
            if (next > (size_t)got)
                break;
            if (type == NT_GNU_BUILD_ID && name == 4 && memcmp(note + at + 12, "GNU", 4) == 0)
                for (uint32_t k = 0; k < desc && k < 64; k++)
                    xl_buf_printf(&hex, "%02x", note[body + k]);
            at = next;
        }
    }
out:
    if (fd >= 0)
        close(fd);
    xl_str id = xl_str_dup(a, xl_buf_view(&hex));
    xl_buf_fini(&hex);
    return id;
}

/* dlerror's text for the commonest case, turned round: "needs libfoo.so.1, which is not installed". */
static xl_error *dlopen_error(const char *path, const char *said)
{
    const char *tail = ": cannot open shared object file";
    const char *at = said ? strstr(said, tail) : NULL;
    if (at && strncmp(said, path, strlen(path)) != 0)
        return XL_ERR(UNAVAILABLE, "%s: needs %.*s, which is not found on this machine", path, (int)(at - said), said);
    if (said && strncmp(said, path, strlen(path)) == 0 && said[strlen(path)] == ':')
        return XL_ERR(UNAVAILABLE, "%s", said);
    return XL_ERR(UNAVAILABLE, "%s: %s", path, said ? said : "dlopen failed and did not say why");
}

static xl_error *check_table(const char *path, const PJRT_Api *api)
{
    if (!api)
        return XL_ERR(PRECONDITION, "%s: its GetPjrtApi returned no table", path);
    /* The version sits at the same place in every table there ever was; the size must cover at least that. */
    if (!PJRT_HAS(api, pjrt_api_version))
        return XL_ERR(PRECONDITION, "%s: its table claims %zu bytes, too few to hold a version", path,
                      api->struct_size);
    int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
    if (major != PJRT_API_MAJOR)
        return XL_ERR(PRECONDITION, "%s: PJRT API %d.%d, but this xlane speaks %d.x", path, major, minor,
                      PJRT_API_MAJOR);
    if (minor < PJRT_API_MINOR_FLOOR)
        return XL_ERR(PRECONDITION, "%s: PJRT API %d.%d, but tables before %d.%d have another order", path, major,
                      minor, PJRT_API_MAJOR, PJRT_API_MINOR_FLOOR);
    if (!PJRT_HAS(api, PJRT_Client_Create) || !api->PJRT_Error_Destroy || !api->PJRT_Error_Message)
        return XL_ERR(PRECONDITION, "%s: its table of %zu bytes is not one of PJRT %d.%d", path, api->struct_size,
                      major, minor);
    return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static xl_plugin *loaded;

xl_error *xl_plugin_load(const char *path, xl_plugin **out)
{
    xl_error *err = NULL;
    xl_plugin *p = NULL;
    *out = NULL;
    pthread_mutex_lock(&lock);
    for (p = loaded; p; p = p->next)
        if (strcmp(p->path, path) == 0) {
            *out = p;
            p = NULL;
            goto out;
        }
    XL_DO(xl_plugin_inspect(path));
    void *so = dlopen(path, RTLD_LAZY | RTLD_LOCAL); /* as JAX and PyTorch/XLA do it, so that our verdict is theirs */
    if (!so) {
        err = dlopen_error(path, dlerror());
        goto out;
    }
    PJRT_GetPjrtApi *get = NULL;
    *(void **)&get = dlsym(so, "GetPjrtApi");
    if (!get) {
        err = XL_ERR(PRECONDITION, "%s: it loads, but has no GetPjrtApi: not a PJRT plugin", path);
        goto out;
    }
    const PJRT_Api *api = get();
    XL_DO(check_table(path, api));
    p = calloc(1, sizeof *p);
    if (p)
        p->path = strdup(path);
    if (!p || !p->path) {
        free(p);
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    p->api = api;
    p->file = file_part(p->path);
    p->next = loaded;
    loaded = p;
    *out = p;
out:
    pthread_mutex_unlock(&lock);
    return err;
}

xl_error *xl_plugin_open(const char *path, xl_plugin **out)
{
    xl_error *err = xl_error_wrap(xl_plugin_load(path, out), "opening the device");
    xl_buf word = { 0 };
    xl_buf_word(&word, path);
    err = xl_error_next(err, "`xlane probe --plugin=%.*s` says what to do", XL_FMT(xl_buf_view(&word)));
    xl_buf_fini(&word);
    return err;
}

xl_error *xl_plugin_init(xl_plugin *p)
{
    xl_error *err = NULL;
    pthread_mutex_lock(&lock);
    if (!p->ready) {
        PJRT_Plugin_Initialize_Args args = { .struct_size = sizeof args };
        XL_DO(PJRT_CALL(p, PJRT_Plugin_Initialize, &args));
        p->ready = true;
    }
out:
    pthread_mutex_unlock(&lock);
    return err;
}

const char *xl_plugin_path(const xl_plugin *p) { return p->path; }
int xl_plugin_major(const xl_plugin *p) { return p->api->pjrt_api_version.major_version; }
int xl_plugin_minor(const xl_plugin *p) { return p->api->pjrt_api_version.minor_version; }

static const struct { const char *name; int since; size_t offset; } calls[] = {
#define API(ret, name, since) { #name, since, offsetof(PJRT_Api, name) },
#include "pjrt/api.def"
};

bool xl_plugin_can(const xl_plugin *p, const char *call)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, call) == 0) {
            void *entry = NULL;
            if (p->api->struct_size < calls[i].offset + sizeof entry)
                return false;
            memcpy(&entry, (const char *)p->api + calls[i].offset, sizeof entry);
            return entry != NULL;
        }
    return false;
}

xl_error *xl_plugin_lacks(const xl_plugin *p, const char *fn)
{
    int since = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, fn) == 0)
            since = calls[i].since;
    return XL_ERR(UNIMPLEMENTED, "%s does not offer %s: it speaks PJRT %d.%d, the call is there since %d.%d", p->file,
                  fn, xl_plugin_major(p), xl_plugin_minor(p), PJRT_API_MAJOR, since);
}

void *xl_plugin_gave(const xl_plugin *p, const void *handle, const char *what, size_t size, xl_error **err)
{
    void *made = handle ? calloc(1, size) : NULL;
    *err = !handle ? XL_ERR(INTERNAL, "%s returned no %s, which the PJRT interface requires", p->file, what)
           : made  ? NULL
                   : XL_ERR(EXHAUSTED, "out of memory");
    return made;
}

xl_error *xl_plugin_error(const xl_plugin *p, const char *fn, PJRT_Error *e)
{
    if (!e)
        return NULL;
    PJRT_Error_GetCode_Args code = { .struct_size = sizeof code, .error = e };
    PJRT_Error_Message_Args text = { .struct_size = sizeof text, .error = e };
    PJRT_Error_Destroy_Args gone = { .struct_size = sizeof gone, .error = e };
    PJRT_Error *again = p->api->PJRT_Error_GetCode ? p->api->PJRT_Error_GetCode(&code) : NULL;
    if (again) { /* an error about an error: free it and go on without a code */
        PJRT_Error_Destroy_Args second = { .struct_size = sizeof second, .error = again };
        p->api->PJRT_Error_Destroy(&second);
        code.code = PJRT_Error_Code_UNKNOWN;
    }
    p->api->PJRT_Error_Message(&text);
    if (code.code <= 0 || code.code > PJRT_Error_Code_UNAUTHENTICATED)
        code.code = PJRT_Error_Code_UNKNOWN;
    size_t n = text.message ? text.message_size : 0;
    if (n > 1u << 16) /* some plugins print the whole program */
        n = 1u << 16;
    while (n && (text.message[n - 1] == '\n' || text.message[n - 1] == ' '))
        n--;
    xl_error *err =
        xl_error_new((xl_code)code.code, "%s: %s: %.*s", p->file, fn, (int)n, n ? text.message : "no message");
    p->api->PJRT_Error_Destroy(&gone);
    return err;
}

static const char *const extension_names[] = {
    "Gpu_Custom_Call", "Profiler", "Custom_Partitioner", "Stream", "Layouts", "FFI", "MemoryDescriptions", "Triton",
    "RawBuffer", "PhaseCompile", "Example", "Unknown", "CrossHostTransfers", "ExecutableMetadata", "Callback",
    "HostAllocator", "TpuTopology", "TpuExecutable", "Megascale", "Shardings", "AbiVersion", "Collectives",
    "MultiSlice", "HostMemoryAllocator", "XlaTransform",
};

const char *xl_extension_name(int number)
{
    return number >= 0 && (size_t)number < sizeof extension_names / sizeof *extension_names ? extension_names[number]
                                                                                            : "unknown";
}

size_t xl_plugin_extensions(const xl_plugin *p, int *number, size_t cap)
{
    size_t n = 0;
    /* 1000: a chain that bites its tail must end somewhere */
    for (const PJRT_Extension_Base *e = p->api->extension_start; e && n < 1000; e = e->next, n++)
        if (n < cap)
            number[n] = (int)e->type;
    return n;
}

xl_str xl_pjrt_str(xl_arena *a, const char *p, size_t n)
{
    return p ? xl_str_dup(a, (xl_str){ p, n }) : (xl_str){ "", 0 };
}

PJRT_NamedValue *xl_named_to_pjrt(xl_arena *a, const xl_named *v, size_t n)
{
    PJRT_NamedValue *out = xl_new(a, PJRT_NamedValue, n);
    for (size_t i = 0; i < n; i++) {
        out[i].struct_size = sizeof *out;
        out[i].name = xl_str_c(a, v[i].name);
        out[i].name_size = v[i].name.n;
        out[i].value_size = 1;
        switch (v[i].kind) {
        case XL_NAMED_STR:
            out[i].type = PJRT_NamedValue_kString;
            out[i].string_value = xl_str_c(a, v[i].str);
            out[i].value_size = v[i].str.n;
            break;
        case XL_NAMED_INT:
            out[i].type = PJRT_NamedValue_kInt64;
            out[i].int64_value = v[i].i;
            break;
        case XL_NAMED_INTS:
            out[i].type = PJRT_NamedValue_kInt64List;
            out[i].int64_array_value = v[i].ints.p;
            out[i].value_size = v[i].ints.n;
            break;
        case XL_NAMED_FLOAT:
            out[i].type = PJRT_NamedValue_kFloat;
            out[i].float_value = v[i].f;
            break;
        case XL_NAMED_BOOL:
            out[i].type = PJRT_NamedValue_kBool;
            out[i].bool_value = v[i].b;
            break;
        }
    }
    return out;
}

const xl_named *xl_named_from_pjrt(xl_arena *a, const PJRT_NamedValue *v, size_t n)
{
    xl_named *out = xl_new(a, xl_named, n);
    for (size_t i = 0; i < n; i++) {
        out[i].name = xl_pjrt_str(a, v[i].name, v[i].name_size);
        switch (v[i].type) {
        case PJRT_NamedValue_kInt64:
            out[i].kind = XL_NAMED_INT;
            out[i].i = v[i].int64_value;
            break;
        case PJRT_NamedValue_kInt64List: {
            int64_t *list = xl_new(a, int64_t, v[i].value_size);
            if (v[i].value_size)
                memcpy(list, v[i].int64_array_value, v[i].value_size * sizeof *list);
            out[i].kind = XL_NAMED_INTS;
            out[i].ints = (xl_dims){ list, v[i].value_size };
            break;
        }
        case PJRT_NamedValue_kFloat:
            out[i].kind = XL_NAMED_FLOAT;
            out[i].f = v[i].float_value;
            break;
        case PJRT_NamedValue_kBool:
            out[i].kind = XL_NAMED_BOOL;
            out[i].b = v[i].bool_value;
            break;
        case PJRT_NamedValue_kString:
            out[i].kind = XL_NAMED_STR;
            out[i].str = xl_pjrt_str(a, v[i].string_value, v[i].value_size);
            break;
        default:                       /* a kind newer than our header: its name is all we can show */
            out[i].kind = XL_NAMED_STR;
            out[i].str = XL_STR("(a kind of value this xlane does not know)");
        }
    }
    return out;
}

xl_error *xl_plugin_attributes(xl_plugin *p, xl_arena *a, const xl_named **out, size_t *n)
{
    xl_error *err = NULL;
    PJRT_Plugin_Attributes_Args args = { .struct_size = sizeof args };
    *out = NULL;
    *n = 0;
    XL_DO(PJRT_CALL(p, PJRT_Plugin_Attributes, &args));
    *n = args.num_attributes;
    *out = xl_named_from_pjrt(a, args.attributes, *n);
out:
    return err;
}
