//! BERT (`BertModel`) and GPT-2 (`GPT2LMHeadModel`) as in Hugging Face's transformers.
//!
//! - BERT: Devlin et al. (2019), base and large, uncased vocabulary; costs for 128 tokens, its main
//!   pre-training length.
//! - GPT-2: Radford et al. (2019), the smallest; the output head shares the token embedding, so it
//!   adds no tensor and that gradient is complete only at the very end; costs for 1,024 tokens.

use super::builder::NetworkBuilder;
use crate::bench::Workload;

/// Number of operations of the two products of attention, scores and weighted values, over `tokens`
/// positions.
fn attention_flops(tokens: usize, hidden: usize) -> usize {
    2 * 2 * tokens * tokens * hidden
}

/// `BertModel` with `layers` layers of `hidden` features.
pub(super) fn bert(name: &str, layers: usize, hidden: usize) -> Workload {
    const VOCABULARY: usize = 30522;
    const POSITIONS: usize = 512;
    const TOKENS: usize = 128;
    let mut net = NetworkBuilder::default();
    net.embedding("embeddings.word_embeddings", VOCABULARY, hidden, TOKENS);
    net.embedding("embeddings.position_embeddings", POSITIONS, hidden, TOKENS);
    net.embedding("embeddings.token_type_embeddings", 2, hidden, TOKENS);
    net.norm("embeddings.LayerNorm", hidden, TOKENS);
    for layer in 0..layers {
        let part = |part: &str| format!("encoder.layer.{layer}.{part}");
        for projection in ["query", "key", "value"] {
            net.linear(
                &part(&format!("attention.self.{projection}")),
                hidden,
                hidden,
                TOKENS,
            );
        }
        net.add_flops(attention_flops(TOKENS, hidden));
        net.linear(&part("attention.output.dense"), hidden, hidden, TOKENS);
        net.norm(&part("attention.output.LayerNorm"), hidden, TOKENS);
        net.linear(&part("intermediate.dense"), hidden, 4 * hidden, TOKENS);
        net.linear(&part("output.dense"), 4 * hidden, hidden, TOKENS);
        net.norm(&part("output.LayerNorm"), hidden, TOKENS);
    }
    net.linear("pooler.dense", hidden, hidden, 1);
    net.finish(name)
}

/// GPT-2 small: 12 layers of 768 features.
pub(super) fn gpt2(name: &str) -> Workload {
    const LAYERS: usize = 12;
    const HIDDEN: usize = 768;
    const VOCABULARY: usize = 50257;
    const TOKENS: usize = 1024;
    let mut net = NetworkBuilder::default();
    net.embedding("transformer.wte", VOCABULARY, HIDDEN, TOKENS);
    net.embedding("transformer.wpe", TOKENS, HIDDEN, TOKENS);
    for layer in 0..LAYERS {
        let part = |part: &str| format!("transformer.h.{layer}.{part}");
        net.norm(&part("ln_1"), HIDDEN, TOKENS);
        net.linear_transposed(&part("attn.c_attn"), HIDDEN, 3 * HIDDEN, TOKENS);
        net.add_flops(attention_flops(TOKENS, HIDDEN));
        net.linear_transposed(&part("attn.c_proj"), HIDDEN, HIDDEN, TOKENS);
        net.norm(&part("ln_2"), HIDDEN, TOKENS);
        net.linear_transposed(&part("mlp.c_fc"), HIDDEN, 4 * HIDDEN, TOKENS);
        net.linear_transposed(&part("mlp.c_proj"), 4 * HIDDEN, HIDDEN, TOKENS);
    }
    net.norm("transformer.ln_f", HIDDEN, TOKENS);
    // The head reuses the token embedding: its work comes first in the backward pass, before any
    // gradient is ready.
    net.add_flops(2 * HIDDEN * VOCABULARY * TOKENS);
    net.finish(name)
}
