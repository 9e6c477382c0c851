// Evaluate token sequences with llama.cpp, through the prebuilt binary that node-llama-cpp brings.
//
//   node llama_cpp.mjs REQUEST.json > ANSWER.json
//
// The request: {library, gguf, windows: [[token, ...], ...], last, out, text, threads}. The answer: {logprobs: for each
// window the log-probability of each token but the first, ids: the tokens of the text}. The logits of the `last` last
// positions of the last window go to the file `out`, as float32, position after position. Nothing is built or fetched.
import {readFileSync, writeFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const {getLlama} = await import(pathToFileURL(request.library));
const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, usePrebuiltBinaries: true,
    logLevel: "error", progressLogs: false, maxThreads: request.threads,
});
const model = await llama.loadModel({modelPath: request.gguf, gpuLayers: 0});
const longest = Math.max(...request.windows.map((window) => window.length));
const context = await model.createContext({
    contextSize: longest, batchSize: Math.min(longest, 512), threads: request.threads,
    flashAttention: false, swaFullCache: true,
});
const sequence = context.getSequence();

const logprobs = [];
const logits = [];
for (const [number, window] of request.windows.entries()) {
    await sequence.clearHistory();
    const whole = (index) => number === request.windows.length - 1 && index >= window.length - request.last;
    const items = window.map((token, index) => {
        if (whole(index)) return [token, {generateNext: {logits: true}}];
        if (index === window.length - 1) return token;
        // includeTop and not includeMax: with a list of tokens the latter adds nothing
        const filter = {tokens: [window[index + 1]], includeTop: 1};
        return [token, {generateNext: {logits: {filter}, totalLogitWeight: true}}];
    });
    const results = await sequence.controlledEvaluate(items);
    const found = [];
    for (let index = 0; index < window.length; index++) {
        if (results[index] === undefined) continue;
        const next = results[index].next;
        const values = [...next.logits.values()];
        const most = values.reduce((a, b) => Math.max(a, b));
        if (whole(index)) {
            const row = new Float32Array(next.logits.size);
            for (const [token, logit] of next.logits) row[token] = logit;
            logits.push(row);
        }
        if (index === window.length - 1) continue;
        const total = whole(index)
            ? values.reduce((sum, value) => sum + Math.exp(value - most), 0)
            : next.totalLogitWeight;
        found.push(next.logits.get(window[index + 1]) - most - Math.log(total));
    }
    logprobs.push(found);
}
if (logits.length > 0) {
    const bytes = logits.map((row) => Buffer.from(row.buffer));
    writeFileSync(request.out, Buffer.concat(bytes));
}
const ids = request.text === "" ? [] : [...model.tokenize(request.text, false)];
process.stdout.write(JSON.stringify({logprobs, ids}), () => process.exit(0));
