//! The command with its variables and its configuration file, in which `{name}` stands for the
//! value of a parameter.
//!
//! Only names of parameters are replaced, so braces of shells and of JSON stay as they are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::parameter::{Parameter, RESERVED as CONFIG, Setting};

/// A command with placeholders.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Configuration file, and the places in it that are set.
    pub config: Option<Config>,
}

/// JSON file of which each run gets a copy with other values.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Path of the user's file.
    pub path: PathBuf,
    /// Its content.
    pub content: Value,
    /// Names of objects, outermost first, and the value with placeholders.
    pub values: Vec<(Vec<String>, String)>,
}

/// A template that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A parameter that no part of the command has.
    #[error("parameter {name} is not passed to the command: {}", hint(name, similar.as_deref()))]
    Unused {
        /// Name of the parameter.
        name: String,
        /// A placeholder that is not a parameter.
        similar: Option<String>,
    },
    /// Values are set in a file that the command does not get.
    #[error(
        "the command does not have {{config}}, so it does not read the copy of {}; write \
         {{config}} where the file's path is, as in --deepspeed_config {{config}}", path.display()
    )]
    ConfigUnused {
        /// Path of the file.
        path: PathBuf,
    },
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    ConfigRead {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The configuration file is not a JSON object.
    #[error("the configuration file {} is not a JSON object: {problem}", path.display())]
    ConfigParse {
        /// Path of the file.
        path: PathBuf,
        /// First error in it.
        problem: String,
    },
    /// A place that cannot be set.
    #[error("--set {text}: {problem}; write NAME.NAME={{parameter}}")]
    Set {
        /// Text of the option.
        text: String,
        /// Error in it.
        problem: String,
    },
}

fn hint(name: &str, similar: Option<&str>) -> String {
    match similar {
        Some(other) => {
            format!("the command has {{{other}}}, which is not a parameter; write {{{name}}}")
        }
        None => format!("write {{{name}}} in an argument, or in --env VARIABLE={{{name}}}"),
    }
}

impl Config {
    /// Reads a file and the places that `--set` gave.
    ///
    /// # Errors
    /// The file cannot be read or is no JSON object, or a place is within something else.
    pub fn read(path: &Path, sets: &[String]) -> Result<Self, TemplateError> {
        let text = ronde_tuner::read_text(path).map_err(|source| TemplateError::ConfigRead {
            path: path.to_owned(),
            source,
        })?;
        let content = match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() => Ok(value),
            Ok(_) => Err("it is another JSON value".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let content = content.map_err(|problem| TemplateError::ConfigParse {
            path: path.to_owned(),
            problem,
        })?;
        let mut values = Vec::new();
        for text in sets {
            let problem = |problem: &str| TemplateError::Set {
                text: text.clone(),
                problem: problem.to_owned(),
            };
            let (place, value) = text.split_once('=').ok_or_else(|| problem("it has no ="))?;
            let place: Vec<String> = place.split('.').map(str::to_owned).collect();
            if place.iter().any(String::is_empty) {
                return Err(problem("a name is missing"));
            }
            let mut at = Some(&content);
            for name in &place[..place.len() - 1] {
                at = at.and_then(|value| value.get(name));
                if at.is_some_and(|value| !value.is_object()) {
                    return Err(problem(&format!("{name} is not an object in the file")));
                }
            }
            values.push((place, value.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            content,
            values,
        })
    }

    /// Number at a place of the file.
    pub fn number(&self, place: &[&str]) -> Option<f64> {
        self.value(place).and_then(Value::as_f64)
    }

    /// Value at a place of the file.
    pub fn value(&self, place: &[&str]) -> Option<&Value> {
        let mut names = place.iter();
        names.try_fold(&self.content, |value, name| value.get(name))
    }

    /// The file's content with the values of a setting.
    fn filled(&self, fill: impl Fn(&str) -> String) -> Value {
        let mut content = self.content.clone();
        for (place, text) in &self.values {
            let text = fill(text);
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let mut at = &mut content;
            for name in place {
                // The places have been checked: a value that is not an object is missing.
                if !at.is_object() {
                    *at = Value::Object(serde_json::Map::new());
                }
                at = &mut at[name.as_str()];
            }
            *at = value;
        }
        content
    }
}

/// A command of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
    /// Content of the configuration file's copy.
    pub config: Option<String>,
}

impl Template {
    /// Checks that every parameter is passed to the command.
    ///
    /// # Errors
    /// A parameter without a placeholder, or a configuration file that is not passed.
    pub fn check(&self, parameters: &[Parameter]) -> Result<(), TemplateError> {
        let arguments = self.command.iter().filter_map(|word| word.to_str());
        let variables = self.variables.iter().map(|(_, text)| text.as_str());
        let values = self.config.iter().flat_map(|config| &config.values);
        let values = values.map(|(_, text)| text.as_str());
        let on_command: Vec<&str> = arguments.chain(variables).collect();
        let texts: Vec<&str> = on_command.iter().copied().chain(values).collect();
        let is_in =
            |texts: &[&str], name| texts.iter().any(|text| text.contains(&placeholder(name)));
        for parameter in parameters {
            if !is_in(&texts, parameter.name()) {
                return Err(TemplateError::Unused {
                    name: parameter.name().to_owned(),
                    similar: unknown(&texts, parameters),
                });
            }
        }
        match &self.config {
            Some(config) if !is_in(&on_command, CONFIG) => Err(TemplateError::ConfigUnused {
                path: config.path.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The command with the values of a setting. `config_path` is the path of the file's copy.
    pub fn fill(&self, parameters: &[Parameter], setting: &Setting, config_path: &Path) -> Filled {
        let fill = |text: &str| {
            let mut text = text.to_owned();
            for (parameter, index) in parameters.iter().zip(&setting.0) {
                text = text.replace(&placeholder(parameter.name()), parameter.value(*index));
            }
            text
        };
        let with_path = |text: &str| match &self.config {
            Some(_) => fill(text).replace(&placeholder(CONFIG), &config_path.to_string_lossy()),
            None => fill(text),
        };
        let word = |word: &OsString| -> OsString {
            let Some(text) = word.to_str() else {
                return word.clone();
            };
            with_path(text).into()
        };
        let variables = self.variables.iter();
        Filled {
            command: self.command.iter().map(word).collect(),
            variables: variables
                .map(|(name, text)| (name.clone(), with_path(text)))
                .collect(),
            config: self
                .config
                .as_ref()
                .map(|config| format!("{:#}\n", config.filled(fill))),
        }
    }

    /// Text of the command that identifies it in a state file.
    pub fn identity(&self) -> String {
        let words = self
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    /// The program.
    pub fn program(&self) -> &OsStr {
        self.command
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str)
    }
}

/// Text in the template that stands for the value of a parameter.
pub(crate) fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// A placeholder that is neither a parameter nor the configuration file.
fn unknown(texts: &[&str], parameters: &[Parameter]) -> Option<String> {
    let names = texts.iter().flat_map(|text| text.split('{').skip(1));
    let names = names.filter_map(|rest| Some(rest.split_once('}')?.0));
    let is_known = |name: &&str| *name == CONFIG || parameters.iter().any(|p| p.name() == *name);
    let mut names = names.filter(|name| crate::parameter::is_name(name) && !is_known(name));
    names.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Vec<Parameter> {
        vec![
            "bucket=1..4".parse().unwrap(),
            "algo=ring|tree".parse().unwrap(),
        ]
    }

    fn template(command: &[&str]) -> Template {
        Template {
            command: command.iter().map(OsString::from).collect(),
            ..Template::default()
        }
    }

    #[test]
    fn only_parameters_are_replaced() {
        let mut template = template(&["sh", "-c", "echo ${HOME} {bucket}-{bucket} {x: 1}"]);
        template.variables = vec![("NCCL_ALGO".to_owned(), "{algo}".to_owned())];
        template.check(&parameters()).unwrap();
        let filled = template.fill(&parameters(), &Setting(vec![3, 1]), Path::new("c"));
        assert_eq!(filled.command[2], "echo ${HOME} 4-4 {x: 1}");
        assert_eq!(
            filled.variables,
            [("NCCL_ALGO".to_owned(), "tree".to_owned())]
        );
        assert_eq!(filled.config, None);
    }

    #[test]
    fn a_parameter_that_is_not_passed_is_named() {
        let error = |command: &[&str]| {
            template(command)
                .check(&parameters())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(&["a", "{algo}"]),
            "parameter bucket is not passed to the command: write {bucket} in an argument, or in \
             --env VARIABLE={bucket}"
        );
        assert!(error(&["a", "{algo}", "{buckt}"]).contains("the command has {buckt}"));
    }

    #[test]
    fn a_configuration_file_gets_other_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ds.json");
        std::fs::write(
            &path,
            r#"{"fp16":{"on":true},"zero":{"stage":2,"size":5e8}}"#,
        )
        .unwrap();
        let read = |sets: &[&str]| {
            Config::read(
                &path,
                &sets.iter().map(|set| (*set).to_owned()).collect::<Vec<_>>(),
            )
        };
        let config = read(&["zero.size={bucket}", "comm.algo={algo}"]).unwrap();
        assert_eq!(config.number(&["zero", "size"]), Some(5e8));
        let mut template = template(&["train", "--config={config}"]);
        template.config = Some(config);
        template.check(&parameters()).unwrap();
        let filled = template.fill(
            &parameters(),
            &Setting(vec![1, 0]),
            Path::new("/tmp/c.json"),
        );
        assert_eq!(filled.command[1], "--config=/tmp/c.json");
        let content: Value = serde_json::from_str(&filled.config.unwrap()).unwrap();
        assert_eq!(
            content,
            serde_json::json!({
                "fp16": {"on": true},
                "zero": {"stage": 2, "size": 2},
                "comm": {"algo": "ring"},
            })
        );
        template.command.pop();
        assert!(
            template
                .check(&parameters())
                .unwrap_err()
                .to_string()
                .contains("{config}")
        );
        for (set, problem) in [
            ("zero", "no ="),
            ("zero..x=1", "missing"),
            ("zero.stage.x=1", "not an object"),
        ] {
            let error = read(&[set]).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        std::fs::write(&path, "[]").unwrap();
        assert!(
            read(&[])
                .unwrap_err()
                .to_string()
                .contains("not a JSON object")
        );
        let missing = Config::read(&folder.path().join("no"), &[]).unwrap_err();
        assert!(missing.to_string().contains("cannot read"));
    }
}
