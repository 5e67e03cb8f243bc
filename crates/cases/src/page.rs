//! Check of an HTML page as a browser parses it: well formed, self-contained, and without numbers
//! that are not finite.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};

/// Elements without an end tag.
const VOID: [&str; 2] = ["meta", "br"];

/// Elements and attributes that load something, and texts of scripts and styles that do.
const LOADING_ELEMENTS: [&str; 5] = ["link", "img", "iframe", "object", "embed"];
const LOADING_ATTRIBUTES: [&str; 5] = ["src", "srcset", "data", "action", "poster"];
const LOADING_TEXTS: [&str; 7] = [
    "http://",
    "https://",
    "//fonts",
    "@import",
    "url(//",
    "fetch(",
    "XMLHttpRequest",
];

/// Page in its parts.
#[derive(Default)]
pub struct Parsed {
    /// Names of the elements.
    pub elements: Vec<String>,
    /// Element, name and value of the attributes.
    attributes: Vec<(String, String, String)>,
    /// Text outside of elements' tags, of scripts and styles too.
    pub text: String,
}

impl Parsed {
    /// Parses a page, which must be well formed.
    fn new(page: &str) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let (mut parsed, mut open) = (Self::default(), Vec::new());
        let mut emitter = DefaultEmitter::default();
        emitter.naively_switch_states(true); // the text of scripts is not markup
        for token in Tokenizer::new_with_emitter(page, emitter) {
            match token.expect("a string is always read") {
                Token::StartTag(tag) => {
                    let name = text(&tag.name);
                    if !tag.self_closing && !VOID.contains(&name.as_str()) {
                        open.push(name.clone());
                    }
                    for (key, value) in &tag.attributes {
                        let attribute = (name.clone(), text(key), text(value));
                        parsed.attributes.push(attribute);
                    }
                    parsed.elements.push(name);
                }
                Token::EndTag(tag) => assert_eq!(open.pop(), Some(text(&tag.name))),
                Token::String(string) => parsed.text.push_str(&text(&string)),
                Token::Error(error) => panic!("the page is not well formed: {error:?}"),
                Token::Doctype(_) | Token::Comment(_) => {}
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
        parsed
    }

    /// Identifiers of the elements.
    pub fn ids(&self) -> Vec<&str> {
        let ids = self.attributes.iter().filter(|(_, key, _)| key == "id");
        ids.map(|(_, _, id)| id.as_str()).collect()
    }
}

/// Returns a page without ECharts and its licences, so that tests check only the rest.
///
/// # Panics
/// If the text is not a page of the program.
pub fn own_part(page: &str) -> String {
    let cut = |page: &str, from: &str, to: &str| {
        let (before, rest) = page.split_once(from).expect("the part begins");
        let (_, after) = rest.split_once(to).expect("the part ends");
        format!("{before}{after}")
    };
    let page = cut(page, "<script id=\"echarts\">", "</script>");
    cut(&page, "<details id=\"licences\">", "</details>")
}

/// Checks that the page is well formed, identifiers are unique, references resolve, nothing is
/// loaded from elsewhere, and every number is finite.
///
/// # Panics
/// If it is not so.
pub fn check(page: &str) -> Parsed {
    let own = &own_part(page);
    let parsed = Parsed::new(own);
    let ids = parsed.ids();
    let unique: std::collections::HashSet<&&str> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "identifiers twice: {ids:?}");
    for (element, key, value) in &parsed.attributes {
        let attribute = format!("<{element} {key}={value}>");
        match key.as_str() {
            "href" => {
                let target = value.strip_prefix('#');
                assert!(target.is_some_and(|id| ids.contains(&id)), "{attribute}");
            }
            "aria-labelledby" | "aria-describedby" => {
                assert!(ids.contains(&value.as_str()), "{attribute}");
            }
            key => assert!(
                !key.starts_with("on") && !LOADING_ATTRIBUTES.contains(&key),
                "{attribute}"
            ),
        }
        assert!(!value.contains("inf"), "{attribute}");
    }
    for text in LOADING_TEXTS.into_iter().chain(["NaN"]) {
        assert!(!own.contains(text), "{text}");
    }
    let loads = |name: &String| LOADING_ELEMENTS.contains(&name.as_str());
    assert!(!parsed.elements.iter().any(loads));
    parsed
}
