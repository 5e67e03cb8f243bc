//! HTML pages; for tests, also their parse errors.

pub(crate) use ronde_present::html::*;

/// Parse errors of the page. The text of scripts is not parsed as markup.
#[cfg(test)]
pub(crate) fn errors(page: &str) -> Vec<String> {
    let mut emitter = html5gum::emitters::default::DefaultEmitter::<()>::default();
    emitter.naively_switch_states(true);
    let tokens = html5gum::Tokenizer::new_with_emitter(page, emitter);
    let errors = tokens.filter_map(|token| match token {
        Ok(html5gum::Token::Error(error)) => Some(format!("{error:?}")),
        _ => None,
    });
    errors.collect()
}
