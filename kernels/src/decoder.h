// One step of a decoder-only transformer with packed weights: all layers in one call, for a few tokens.
#pragma once
#include "packed.h"

namespace burnish {

enum Activation : int32_t { SILU = 0, GELU_TANH = 1 };

// Norm weights are what is multiplied with: an offset of 1, where a family has one, is in them already.
struct Layer {
    Packed q, k, v, o, gate, up, down;
    const float* attention_norm;
    const float* mlp_norm;
    const float* query_norm;      // (width) or null: queries and keys are normalized head by head
    const float* key_norm;
    const float* attention_out;   // (hidden) or null: what attention, or the MLP, gives is normalized before it is added
    const float* mlp_out;
    float* keys;                  // (slots, heads, capacity, width)
    float* values;
    int32_t window;               // positions that are seen, the own one included; 0 for all
    int32_t rope;                 // which of the step's tables
};

struct Decoder {
    const Layer* layers;
    const Packed* embedding;      // null where the step is given hidden states
    const Packed* head;           // null where it is to give hidden states
    const float* final_norm;
    float eps, scaling, embedding_scale;
    int32_t count, hidden, inner, query_heads, key_heads, width, activation, capacity;
};

struct Step {
    const int64_t* tokens;        // (rows), or null
    const float* input;           // (rows, hidden) in place of tokens, or null
    const int32_t* slots;         // (rows) whose cache each reads and writes
    const int32_t* places;        // (rows) where in it; rows of one slot come in order
    const int32_t* first;         // (rows) the first place that is seen: what lies before is padding
    const float* const* cosines;  // tables of (rows, width)
    const float* const* sines;
    float* logits;                // (rows, vocabulary), or null
    float* hidden;                // (rows, hidden) after the final norm, or null
    int32_t rows, threads;
};

void step(const Decoder& d, const Step& s);

// Rows of a packed matrix: (count, columns).
void decode_rows(const Packed& w, const int64_t* rows, int count, float scale, float* to);

}  // namespace burnish
