#include "decoder.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "linear.h"

namespace burnish {

namespace {

// e^x to 2 ulp: a polynomial on [-ln 2 / 2, ln 2 / 2], and the exponent's bits.
inline Floats exponential(Floats x) {
    const Floats low = all(-87.0f), high = all(88.0f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    const Floats magic = all(12582912.0f);
    const Floats n = (x * all(1.44269504f) + magic) - magic;
    const Floats r = (x - n * all(0.693359375f)) + n * all(2.12194440e-4f);
    Floats p = all(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = p * r + all(c);
    p = p * r * r + r + all(1.0f);
    const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
    return p * (Floats)exponent;
}

inline Floats activate(Floats x, int32_t kind) {
    const Floats one = all(1.0f);
    if (kind == SILU) return x / (one + exponential(-x));
    // x/2 (1 + tanh(u)) = x / (1 + e^(-2u))
    const Floats u = all(0.7978845608f) * (x + all(0.044715f) * x * x * x);
    return x / (one + exponential(all(-2.0f) * u));
}

void normalize(const float* x, const float* weight, int n, float eps, float* y) {
    double total = 0;
    for (int i = 0; i < n; i++) total += (double)x[i] * x[i];
    const float factor = 1.0f / std::sqrt((float)(total / n) + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * factor * weight[i];
}

void rotate(float* x, const float* cosine, const float* sine, int width) {
    const int h = width / 2;
    for (int i = 0; i < h; i++) {
        const float a = x[i], b = x[i + h];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + h] = b * cosine[i + h] + a * sine[i + h];
    }
}

// Everything a step works on. What all threads share is written by one thread a part, between barriers.
struct Work {
    const Decoder& d;
    const Step& s;
    std::vector<float> hidden, normed, queries, keys, values, mixed, inner, branch;

    Work(const Decoder& decoder, const Step& step_)
        : d(decoder), s(step_),
          hidden((size_t)s.rows * d.hidden), normed(), queries((size_t)s.rows * padded(d.query_heads * d.width)),
          keys((size_t)s.rows * padded(d.key_heads * d.width)), values(keys.size()),
          mixed((size_t)s.rows * d.query_heads * d.width), inner((size_t)s.rows * padded(d.inner)), branch(hidden.size()) {}

    static int padded(int n) { return (n + PANEL - 1) / PANEL * PANEL; }
};

// A thread's own input of a linear layer, made ready; a layer with the same codes' shape takes it again.
struct Input {
    std::vector<float> space, normed;
    const float* x = nullptr;
    int64_t stride = 0;
    int bits = 0, group = 0, columns = 0;
    Prepared made[64 / FEW];

    void set(const float* from, int64_t by) { x = from, stride = by, bits = 0; }

    const Prepared* ready(const Packed& w, int rows) {
        if (w.bits != bits || w.group != group || w.columns != columns) {
            bits = w.bits, group = w.group, columns = w.columns;
            space.resize(prepared_floats(w, rows));
            float* to = space.data();
            for (int r = 0, i = 0; r < rows; r += FEW, i++) {
                const int count = std::min(FEW, rows - r);
                made[i] = prepare(w, x + r * stride, stride, count, to);
                to += prepared_floats(w, count);
            }
        }
        return made;
    }
};

// Outputs of one panel for all rows, with bias: y[r * 16 + n].
void panel_of(const Packed& w, int panel, Input& input, int rows, float* y) {
    const Prepared* x = input.ready(w, rows);
    for (int r = 0, i = 0; r < rows; r += FEW, i++) panel_product(w, panel, x[i], std::min(FEW, rows - r), y + r * PANEL, PANEL);
    if (w.bias)
        for (int n = 0, count = std::min(PANEL, w.rows - panel * PANEL); n < count; n++)
            for (int r = 0; r < rows; r++) y[r * PANEL + n] += w.bias[panel * PANEL + n];
}

void put(const Packed& w, int panel, const float* from, int rows, float* y, int64_t stride, bool add) {
    const int first = panel * PANEL, count = std::min(PANEL, w.rows - first);
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < count; n++) {
            float& to = y[r * stride + first + n];
            to = add ? to + from[r * PANEL + n] : from[r * PANEL + n];
        }
}

// One query head of one row over the cache.
void attend(const Decoder& d, const Layer& layer, const float* q, int slot, int head, int begin, int end, float* out,
            std::vector<float>& scores) {
    const int64_t base = ((int64_t)slot * d.key_heads + head) * d.capacity * d.width;
    const float *keys = layer.keys + base, *values = layer.values + base;
    const int count = end - begin;
    if (count <= 0) {  // a row of padding sees nothing; what it gives is never read
        std::fill(out, out + d.width, 0.0f);
        return;
    }
    scores.resize(count + LANES);
    float highest = -INFINITY;
    for (int i = 0; i < count; i++) {
        const float* k = keys + (int64_t)(begin + i) * d.width;
        Floats even{}, odd{};
        int c = 0;
        for (; c + 2 * LANES <= d.width; c += 2 * LANES) {
            even += load<Floats>(q + c) * load<Floats>(k + c);
            odd += load<Floats>(q + c + LANES) * load<Floats>(k + c + LANES);
        }
        for (; c < d.width; c += LANES) even += load<Floats>(q + c) * load<Floats>(k + c);
        scores[i] = sum(even + odd) * d.scaling;
        highest = std::max(highest, scores[i]);
    }
    Floats total{};
    for (int i = count; i < count + LANES; i++) scores[i] = -INFINITY;
    for (int i = 0; i < count; i += LANES) {
        Floats e = exponential(load<Floats>(&scores[i]) - all(highest));
        if (i + LANES > count)
            for (int j = count - i; j < LANES; j++) e[j] = 0;
        store(&scores[i], e);
        total += e;
    }
    const float share = 1.0f / sum(total);
    for (int c = 0; c < d.width; c += 2 * LANES) {
        Floats a{}, b{};
        const bool two = c + LANES < d.width;
        for (int i = 0; i < count; i++) {
            const float* v = values + (int64_t)(begin + i) * d.width + c;
            const Floats p = all(scores[i]);
            a += p * load<Floats>(v);
            if (two) b += p * load<Floats>(v + LANES);
        }
        store(out + c, a * all(share));
        if (two) store(out + c + LANES, b * all(share));
    }
}

// Normalized rows, in the thread's own memory.
void norm_input(Input& input, const float* x, const float* weight, int n, float eps, int rows) {
    input.normed.resize((size_t)rows * n);
    for (int r = 0; r < rows; r++) normalize(x + (int64_t)r * n, weight, n, eps, input.normed.data() + (int64_t)r * n);
    input.set(input.normed.data(), n);
}

void add_branch(Work& work, const float* weight) {
    const Decoder& d = work.d;
#pragma omp for schedule(static)
    for (int r = 0; r < work.s.rows; r++) {
        float* row = work.branch.data() + (int64_t)r * d.hidden;
        normalize(row, weight, d.hidden, d.eps, row);
        for (int i = 0; i < d.hidden; i++) work.hidden[(int64_t)r * d.hidden + i] += row[i];
    }
}

void output(Work& work, const Packed& w, Input& input, const float* branch_norm, float* out) {
    const int rows = work.s.rows, hidden = work.d.hidden;
    float* to = branch_norm ? work.branch.data() : work.hidden.data();
#pragma omp for schedule(static)
    for (int p = 0; p < w.panels(); p++) {
        panel_of(w, p, input, rows, out);
        put(w, p, out, rows, to, hidden, branch_norm == nullptr);
    }
    if (branch_norm) add_branch(work, branch_norm);
}

void attention(Work& work, const Layer& layer, Input& input, float* out, std::vector<float>& scores) {
    const Decoder& d = work.d;
    const Step& s = work.s;
    const int rows = s.rows, width = d.width, group = d.query_heads / d.key_heads;
    const int q_stride = Work::padded(d.query_heads * width), k_stride = Work::padded(d.key_heads * width);
    const int nq = layer.q.panels(), nk = layer.k.panels(), nv = layer.v.panels();
    norm_input(input, work.hidden.data(), layer.attention_norm, d.hidden, d.eps, rows);
#pragma omp for schedule(static)
    for (int p = 0; p < nq + nk + nv; p++) {
        const bool is_q = p < nq, is_k = !is_q && p < nq + nk;
        const Packed& w = is_q ? layer.q : is_k ? layer.k : layer.v;
        const int panel = is_q ? p : is_k ? p - nq : p - nq - nk;
        panel_of(w, panel, input, rows, out);
        std::vector<float>& to = is_q ? work.queries : is_k ? work.keys : work.values;
        put(w, panel, out, rows, to.data(), is_q ? q_stride : k_stride, false);
    }
#pragma omp for schedule(static)
    for (int h = 0; h < d.key_heads; h++)
        for (int r = 0; r < rows; r++) {
            float* k = work.keys.data() + (int64_t)r * k_stride + h * width;
            const float* v = work.values.data() + (int64_t)r * k_stride + h * width;
            if (layer.key_norm) normalize(k, layer.key_norm, width, d.eps, k);
            rotate(k, s.cosines[layer.rope] + (int64_t)r * width, s.sines[layer.rope] + (int64_t)r * width, width);
            const int64_t at = (((int64_t)s.slots[r] * d.key_heads + h) * d.capacity + s.places[r]) * width;
            std::copy(k, k + width, layer.keys + at);
            std::copy(v, v + width, layer.values + at);
        }
#pragma omp for schedule(static)
    for (int i = 0; i < rows * d.query_heads; i++) {
        const int r = i / d.query_heads, h = i % d.query_heads;
        float* q = work.queries.data() + (int64_t)r * q_stride + h * width;
        if (layer.query_norm) normalize(q, layer.query_norm, width, d.eps, q);
        rotate(q, s.cosines[layer.rope] + (int64_t)r * width, s.sines[layer.rope] + (int64_t)r * width, width);
        const int end = s.places[r] + 1;
        const int begin = std::max(s.first[r], layer.window ? end - layer.window : 0);
        attend(d, layer, q, s.slots[r], h / group, begin, end, work.mixed.data() + (int64_t)i * width, scores);
    }
    input.set(work.mixed.data(), (int64_t)d.query_heads * width);
    output(work, layer.o, input, layer.attention_out, out);
}

void mlp(Work& work, const Layer& layer, Input& input, float* out) {
    const Decoder& d = work.d;
    const int rows = work.s.rows, stride = Work::padded(d.inner);
    float* other = out + (int64_t)rows * PANEL;
    norm_input(input, work.hidden.data(), layer.mlp_norm, d.hidden, d.eps, rows);
    const bool alike = layer.gate.bits == layer.up.bits && layer.gate.group == layer.up.group;
    Input second;
    if (!alike) second.set(input.x, input.stride);
#pragma omp for schedule(static)
    for (int p = 0; p < layer.gate.panels(); p++) {
        panel_of(layer.gate, p, input, rows, out);
        panel_of(layer.up, p, alike ? input : second, rows, other);
        for (int i = 0; i < rows * PANEL; i += LANES)
            store(out + i, activate(load<Floats>(out + i), d.activation) * load<Floats>(other + i));
        put(layer.gate, p, out, rows, work.inner.data(), stride, false);
    }
    input.set(work.inner.data(), stride);
    output(work, layer.down, input, layer.mlp_out, out);
}

}  // namespace

void decode_rows(const Packed& w, const int64_t* rows, int count, float scale, float* to) {
    const int each = w.units_a_group(), groups = w.groups();
    for (int i = 0; i < count; i++, to += w.columns) {
        const int panel = (int)(rows[i] / PANEL), lane = (int)(rows[i] % PANEL);
        const uint32_t* words = w.panel(panel) + lane;
        for (int unit = 0; unit < w.units(); unit++) {
            uint32_t code[UNIT] = {};
            planes(w.bits, [&](int width, int shift) {
                for (int k = 0; k < UNIT; k++)
                    code[k] |= (words[k / (32 / width) * PANEL] >> (k % (32 / width) * width) & ((1u << width) - 1)) << shift;
                words += width * PANEL;
            });
            const int64_t at = ((int64_t)panel * groups + unit / each) * PANEL + lane;
            const float s = half(w.scale[at]), z = w.kind == MIDDLE ? w.middle() : half(w.zero[at]);
            for (int k = 0, here = unit * UNIT; k < UNIT && here < w.columns; k++, here++)
                to[here] = (w.kind == OFFSET ? (float)code[k] * s + z : ((float)code[k] - z) * s) * scale;
        }
    }
}

void step(const Decoder& d, const Step& s) {
    Work work(d, s);
    if (s.input) std::copy(s.input, s.input + work.hidden.size(), work.hidden.begin());
    else decode_rows(*d.embedding, s.tokens, s.rows, d.embedding_scale, work.hidden.data());
#pragma omp parallel num_threads(s.threads)
    {
        Input input;
        std::vector<float> out((size_t)2 * s.rows * PANEL), scores;
        for (int i = 0; i < d.count; i++) {
            attention(work, d.layers[i], input, out.data(), scores);
            mlp(work, d.layers[i], input, out.data());
        }
        norm_input(input, work.hidden.data(), d.final_norm, d.hidden, d.eps, s.rows);
        if (s.hidden)
#pragma omp single nowait
            std::copy(input.normed.begin(), input.normed.end(), s.hidden);
        if (s.logits)
#pragma omp for schedule(static)
            for (int p = 0; p < d.head->panels(); p++) {
                panel_of(*d.head, p, input, s.rows, out.data());
                put(*d.head, p, out.data(), s.rows, s.logits, d.head->rows, false);
            }
    }
}

}  // namespace burnish
