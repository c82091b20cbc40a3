// node perfetto.js DIR TRACE SQL...: what Perfetto's own trace processor (the WebAssembly build that its UI uses) answers, one line a query.
// DIR has engine_bundle.js and trace_processor.wasm; the bundle is a web worker's, so that a worker's globals are put around it.
const fs = require("fs"), path = require("path"), vm = require("vm");
const [dir, trace, ...queries] = process.argv.slice(2);
const self = { location: { href: "http://localhost/engine_bundle.js", pathname: "/engine_bundle.js", origin: "http://localhost" } };
const port = { postMessage: answer, onmessage: null };
for (const e of ["uncaughtException", "unhandledRejection"]) process.on(e, (x) => { console.log("failed " + (x && x.message || x)); process.exit(1); });
Object.assign(self, { self, TypeError, console, performance, WebAssembly, TextDecoder, TextEncoder, URL, Uint8Array, setTimeout, clearTimeout, crypto: globalThis.crypto,
    addEventListener() {}, postMessage() {}, importScripts() {}, WorkerGlobalScope: Object, Response, navigator: { userAgent: "", language: "en" },
    fetch: async (url) => new Response(fs.readFileSync(path.join(dir, path.basename(String(url)))), { headers: { "content-type": "application/wasm" } }) });

function varint(n) { const b = []; for (; n > 127; n = Math.floor(n / 128)) b.push((n & 127) | 128); return Buffer.from([...b, n]); }
const bytes = (field, b) => Buffer.concat([varint(field * 8 + 2), varint(b.length), b]), number = (field, n) => Buffer.concat([varint(field * 8), varint(n)]);
let seq = 0, waiting = null;
const request = (kind, ...rest) => { port.onmessage({ data: new Uint8Array(bytes(1, Buffer.concat([number(1, seq++), number(2, kind), ...rest]))) }); };
function fields(b) {    // of a protobuf message: [number, value or bytes]
    const out = [];
    const read = () => { let n = 0, s = 1; for (;;) { const c = b[at++]; n += (c & 127) * s; if (c < 128) return n; s *= 128; } };
    let at = 0;
    while (at < b.length) {
        const key = read(), kind = key & 7, f = Math.floor(key / 8);
        if (kind === 0) out.push([f, read()]);
        else if (kind === 2) { const n = read(); out.push([f, b.subarray(at, at + n)]); at += n; }
        else at += kind === 1 ? 8 : 4;
    }
    return out;
}
let lines = [];
function answer(data) {     // prints the strings and whole numbers of a query's cells
    for (const [, m] of fields(Buffer.from(data)))
        for (const [f, v] of fields(m)) {
            if (f === 5) { console.log("fatal " + v); process.exit(1); }
            if (f !== 203) continue;
            for (const [g, r] of fields(v)) {
                if (g === 2) lines.push("error " + r);
                if (g !== 3) continue;
                for (const [h, c] of fields(r)) {
                    if (h === 5) lines.push(...c.toString().split("\0").filter(Boolean));
                    if (h === 2) { let at = 0; while (at < c.length) { let n = 0, s = 1; for (;;) { const x = c[at++]; n += (x & 127) * s; if (x < 128) break; s *= 128; } lines.push(n); } }
                }
            }
        }
}
self.XMLHttpRequest = class {
    open(method, url) { this.url = url; }
    send() {
        const b = fs.readFileSync(path.join(dir, path.basename(String(this.url))));
        this.status = 200;
        this.response = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
        if (this.onload) this.onload();
    }
};
vm.runInNewContext(fs.readFileSync(path.join(dir, "engine_bundle.js"), "utf8"), self);
self.onmessage({ data: port });
setTimeout(() => {
    request(1, bytes(101, fs.readFileSync(trace)));
    request(2);
    for (const q of queries) { lines = []; request(3, bytes(103, bytes(1, Buffer.from(q)))); console.log(lines.join(" ")); }
    process.exit(0);
}, 3000);
