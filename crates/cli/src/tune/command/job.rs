//! Search as it was ordered: command, parameters and metric, from the arguments and the preset.

use ronde_command::{
    Config, Identity, Metric, Parameter, Pattern, Plan, Row, Setting, State, Task, Template,
    preset,
    preset::{Guess, Preset},
};

use super::CommandError;
use crate::present::units::counted;
use crate::tune::args::Args;

/// Default of `--check-tolerance`.
const CHECK_TOLERANCE: f64 = 0.01;

/// A search, as the arguments describe it.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) template: Template,
    pub(super) metric: Metric,
    pub(super) maximize: bool,
    pub(super) check: Option<Pattern>,
    pub(super) tolerance: f64,
    /// Starts of the preset that need not be the values in use.
    pub(super) guesses: Vec<Guess>,
    /// Properties by which a state file belongs to this search.
    pub(super) identity: Identity,
}

impl Job {
    pub(super) fn new(args: &Args) -> Result<Self, CommandError> {
        let preset = args.preset.as_deref().map(preset::find).transpose()?;
        let template = template(args, preset)?;
        let parameters = parameters(args, preset, template.config.as_ref())?;
        let mut guesses =
            preset.map_or_else(Vec::new, |preset| preset.guesses(template.config.as_ref()));
        // The user's own parameter has another start.
        let of_user = |name: &str| args.parameters.iter().any(|text| is_named(text, name));
        guesses.retain(|guess| !of_user(guess.name));
        template.check(&parameters)?;
        let (metric, maximize) = metric(args, preset)?;
        let check = args.check.as_deref();
        let check = check
            .map(|text| Pattern::new("--check", text))
            .transpose()?;
        let tolerance = args.check_tolerance.unwrap_or(CHECK_TOLERANCE);
        let identity = identity(args, &template, &parameters, &metric, maximize, tolerance);
        let plan = Plan::new(parameters, args.runs())?
            .within(args.budget.map(|budget| budget.as_secs_f64()))
            .checked(check.as_ref().map(|_| tolerance))
            .seeded(args.seed())
            .by_wall(matches!(metric, Metric::Wall));
        Ok(Self {
            plan,
            template,
            metric,
            maximize,
            check,
            tolerance,
            guesses,
            identity,
        })
    }

    /// A setting in words: `bucket 25, algo ring`.
    pub(super) fn words(&self, setting: &Setting) -> String {
        let parameters = self.plan.parameters().iter().zip(&setting.0);
        let words = parameters.map(|(p, index)| format!("{} {}", p.name(), p.value(*index)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Direction in which a figure is better.
    pub(super) fn better(&self) -> &'static str {
        if self.maximize { "higher" } else { "lower" }
    }

    /// Figure that a cost stands for.
    pub(super) fn figure(&self, cost: f64) -> f64 {
        if self.maximize { 1.0 / cost } else { cost }
    }

    /// Introduction of a search that has these runs already, in a line.
    pub(super) fn introduction(&self, known: &[Row]) -> String {
        let plan = &self.plan;
        let mut text = format!(
            "{}, at most {}, {}: {} is better",
            counted(plan.settings() as u64, "setting"),
            counted(plan.runs() as u64, "run"),
            self.metric.name(),
            self.better(),
        );
        let parameters = plan.parameters().iter();
        let is_guess = |name: &str| self.guesses.iter().any(|guess| guess.name == name);
        let unstated = parameters
            .filter(|parameter| !parameter.start_is_given() || is_guess(parameter.name()));
        let unstated: Vec<&str> = unstated.map(Parameter::name).collect();
        text += &format!("; the start is {}", self.words(&plan.start()));
        if !unstated.is_empty() {
            text += &format!(
                " (give start=… for {} if another value is in use)",
                unstated.join(", ")
            );
        }
        if !known.is_empty() {
            let runs = counted(known.len() as u64, "run");
            text += &match plan.pairs(known) {
                Some(_) if plan.next(known) == Task::Done => format!(
                    "; {runs} and the verdict are in the state file: give another one for a longer comparison"
                ),
                _ => format!("; continuing after {runs}"),
            };
        }
        text
    }

    /// Warnings of starts that need not be the values in use, by which a gain is overstated.
    pub(super) fn start_warnings(&self) -> Vec<String> {
        let warning = |guess: &Guess| {
            let Guess {
                name,
                place,
                found,
                range,
            } = guess;
            let mut parameters = self.plan.parameters().iter().zip(self.plan.start().0);
            let start = parameters.find(|(parameter, _)| parameter.name() == *name);
            let start = start.map_or("", |(parameter, level)| parameter.value(level));
            format!(
                "{place} is {found} in the configuration file, and the program that replaces it \
                 chooses a value that is not known here: the start of {name}, {start}, is a guess, \
                 and so is a gain against it; give --parameter '{range},start=VALUE'"
            )
        };
        self.guesses.iter().map(warning).collect()
    }

    /// Instruction to continue after an interrupt.
    pub(super) fn unfinished(&self, args: &Args, runs: usize) -> String {
        let runs = counted(runs as u64, "run");
        match &args.state {
            Some(path) => format!(
                "Interrupted after {runs}: the same command continues from {}.",
                path.display()
            ),
            None => {
                format!("Interrupted after {runs}: with --state FILE a search can be continued.")
            }
        }
    }
}

fn template(args: &Args, preset: Option<&Preset>) -> Result<Template, CommandError> {
    let mut command = args.command.clone();
    let mut variables = Vec::new();
    for text in &args.variables {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| CommandError::Variable { text: text.clone() })?;
        variables.push((name.to_owned(), value.to_owned()));
    }
    let mut sets = args.sets.clone();
    if let Some(preset) = preset {
        preset.extend(&mut command)?;
        let of_preset = preset.sets(args.config.is_some())?;
        sets.extend(of_preset.iter().map(|set| (*set).to_owned()));
        let given = |name: &str| match variables.iter().find(|(own, _)| own == name) {
            Some((_, value)) => Some(value.clone()),
            None => std::env::var(name).ok(),
        };
        let added = preset.variables(given)?;
        // A variable to which flags were added replaces the user's.
        variables.retain(|(name, _)| added.iter().all(|(added, _)| added != name));
        variables.extend(added);
    }
    let repeated = variables.iter().enumerate();
    let mut repeated =
        repeated.filter(|(i, (name, _))| variables[..*i].iter().any(|(own, _)| own == name));
    if let Some((_, (name, _))) = repeated.next() {
        return Err(CommandError::VariableTwice { name: name.clone() });
    }
    let config = args.config.as_deref();
    Ok(Template {
        command,
        variables,
        config: config.map(|path| Config::read(path, &sets)).transpose()?,
    })
}

/// Parameters of the preset, then those of the user, which replace those of the same name.
fn parameters(
    args: &Args,
    preset: Option<&Preset>,
    config: Option<&Config>,
) -> Result<Vec<Parameter>, CommandError> {
    let own = args.parameters.iter().map(|text| text.parse());
    let mut own = own.collect::<Result<Vec<Parameter>, _>>()?;
    for (index, parameter) in own.iter().enumerate() {
        let name = parameter.name();
        if own[..index].iter().any(|other| other.name() == name) {
            let name = name.to_owned();
            return Err(CommandError::Repeated { name });
        }
    }
    let texts = preset.map_or_else(Vec::new, |preset| preset.parameters(config));
    let mut parameters = Vec::new();
    for text in texts {
        let name = text.split('=').next().unwrap_or_default();
        parameters.push(match own.iter().position(|own| own.name() == name) {
            Some(index) => own.remove(index),
            // The start in the configuration may be outside of the preset's range.
            None => text.parse()?,
        });
    }
    parameters.extend(own);
    if parameters.is_empty() {
        return Err(CommandError::NoParameters);
    }
    Ok(parameters)
}

/// Whether the text of a parameter has this name.
fn is_named(text: &str, name: &str) -> bool {
    text.split('=').next().map(str::trim) == Some(name)
}

fn metric(args: &Args, preset: Option<&Preset>) -> Result<(Metric, bool), CommandError> {
    let no_matches = |instead| match args.metric_use_is_given() {
        true => Err(CommandError::NoMatches { instead }),
        false => Ok(()),
    };
    if let Some(text) = &args.metric_file {
        no_matches("a value in a file")?;
        return Ok((Metric::file(text)?, args.maximize));
    }
    let own = args.metric.as_deref().map(|text| (text, args.maximize));
    let of_preset = || preset.and_then(|preset| Some((preset.metric?, preset.maximize)));
    match own.or_else(of_preset) {
        Some((_, false)) if args.maximize => Err(CommandError::MaximizedPreset),
        Some((text, maximize)) => {
            let pattern = Pattern::new("--metric", text)?;
            Ok((Metric::Output(pattern, args.metric_use()), maximize))
        }
        None if args.maximize => Err(CommandError::MaximizedTime),
        None => {
            no_matches("the wall time")?;
            Ok((Metric::Wall, false))
        }
    }
}

fn identity(
    args: &Args,
    template: &Template,
    parameters: &[Parameter],
    metric: &Metric,
    maximize: bool,
    tolerance: f64,
) -> Identity {
    let mut identity = Identity::new();
    let mut put = |name: String, text: String| drop(identity.insert(name, text));
    put("command".to_owned(), template.identity());
    put("metric".to_owned(), metric.identity());
    put(
        "better".to_owned(),
        if maximize { "higher" } else { "lower" }.to_owned(),
    );
    put("seed".to_owned(), args.seed().to_string());
    for parameter in parameters {
        put(
            format!("parameter {}", parameter.name()),
            parameter.to_string(),
        );
    }
    // The order of the parameters is that of a setting's values.
    let names: Vec<&str> = parameters.iter().map(Parameter::name).collect();
    put("parameters".to_owned(), names.join(", "));
    for (name, text) in &template.variables {
        put(format!("variable {name}"), text.clone());
    }
    if let Some(config) = &template.config {
        put("configuration".to_owned(), config.content.to_string());
        // In their order: a later value replaces an earlier one.
        let values = config.values.iter();
        let values = values.map(|(place, text)| format!("{}={text}", place.join(".")));
        let values: Vec<String> = values.collect();
        put(State::SETS.to_owned(), values.join(", "));
    }
    if let Some(check) = &args.check {
        put("check".to_owned(), check.clone());
        put(State::TOLERANCE.to_owned(), tolerance.to_string());
    }
    identity
}
