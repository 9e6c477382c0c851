// Tokens a second of llama.cpp, reading and writing, through the prebuilt binary that node-llama-cpp brings.
//
//   node llama_speed.mjs REQUEST.json > ANSWER.json
//
// The request: {library, gguf, threads, read: token ids, write: how many tokens, repeats}. The answer: {read, write}: seconds of each
// repeat, {version}.
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const {getLlama} = await import(pathToFileURL(request.library));
const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, usePrebuiltBinaries: true,
    logLevel: "error", progressLogs: false, maxThreads: request.threads,
});
const model = await llama.loadModel({modelPath: request.gguf, gpuLayers: 0});
const context = await model.createContext({
    contextSize: request.read.length + request.write + 8, batchSize: Math.min(request.read.length, 2048), threads: request.threads,
});
const sequence = context.getSequence();
const found = {read: [], write: [], version: llama.llamaCppRelease};
for (let repeat = 0; repeat < request.repeats; repeat++) {
    await sequence.clearHistory();
    let began = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(request.read);
    found.read.push((performance.now() - began) / 1000);
    await sequence.clearHistory();
    let count = 0;
    // The first token waits for the prompt, so the clock starts with it.
    for await (const token of sequence.evaluate(request.read.slice(0, 16), {temperature: 0, yieldEogToken: true})) {
        if (count === 0) began = performance.now();
        if (count++ === request.write) break;
    }
    found.write.push((performance.now() - began) / 1000);
    if (count !== request.write + 1) throw new Error(`${count} tokens instead of ${request.write + 1}`);
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
