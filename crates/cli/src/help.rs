//! The layout of the texts below the help of each command: examples and explanations.
//!
//! Clap breaks lines that are too long for the terminal, and keeps the breaks that a text has. So each paragraph becomes one line. If some of the
//! explanations of a list of examples do not fit beside their commands, all of them stand below these.

use clap::Command;

/// The width of a small terminal, in columns.
const WIDTH: usize = 80;
/// Columns before an explanation on a line of its own.
const INDENT: usize = 6;
/// A line that begins with so many spaces goes on with the explanation of the line before.
const CONTINUED: usize = 8;

/// The same command with the texts of it and of its subcommands laid out.
pub(crate) fn lay_out(command: Command) -> Command {
    let text = command.get_after_help().map(|text| lay_out_text(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(lay_out)
}

/// A part of a text.
enum Part<'a> {
    Blank,
    Paragraph(String),
    Examples(Vec<Example<'a>>),
}

/// A line with a command and its explanation, and what goes on with the explanation in further lines.
struct Example<'a> {
    line: &'a str,
    more: String,
}

fn lay_out_text(text: &str) -> String {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match parts.last_mut() {
            _ if line.trim().is_empty() => parts.push(Part::Blank),
            Some(Part::Paragraph(paragraph)) if indent == 0 => *paragraph = format!("{paragraph} {line}"),
            _ if indent == 0 => parts.push(Part::Paragraph(line.to_owned())),
            Some(Part::Examples(examples)) => match examples.last_mut() {
                Some(last) if indent >= CONTINUED => last.more = format!("{} {}", last.more, line.trim()),
                _ => examples.push(Example { line, more: String::new() }),
            },
            _ => parts.push(Part::Examples(vec![Example { line, more: String::new() }])),
        }
    }
    parts.iter().map(Part::render).collect::<Vec<_>>().join("\n")
}

impl Part<'_> {
    fn render(&self) -> String {
        match self {
            Self::Blank => String::new(),
            Self::Paragraph(paragraph) => paragraph.clone(),
            Self::Examples(examples) if examples.iter().all(Example::fits) => {
                examples.iter().map(|example| example.line).collect::<Vec<_>>().join("\n")
            }
            Self::Examples(examples) => examples.iter().map(Example::stack).collect::<Vec<_>>().join("\n"),
        }
    }
}

impl Example<'_> {
    /// Whether it is a line that a small terminal can show, or a command alone, which cannot be made shorter.
    fn fits(&self) -> bool {
        self.more.is_empty() && (self.line.chars().count() <= WIDTH || !self.line.trim().contains("  "))
    }

    /// The command, and the explanation below it.
    fn stack(&self) -> String {
        let (command, beside) = self.line.trim().split_once("  ").unwrap_or((self.line.trim(), ""));
        match format!("{}{}", beside.trim_start(), self.more).trim() {
            "" => format!("  {command}"),
            explanation => format!("  {command}\n{:INDENT$}{explanation}", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_become_lines() {
        assert_eq!(lay_out_text("One\ntwo\nthree.\n\nFour."), "One two three.\n\nFour.");
    }

    #[test]
    fn explanations_stand_below_their_commands_if_one_does_not_fit_beside() {
        let short = "Examples:\n  mortar a b      explains\n  mortar c\n\nThe end.";
        assert_eq!(lay_out_text(short), short);
        let long = "explains what the command does with many words, more than fit beside it";
        let text = format!(
            "Examples:\n  mortar a b      explains\n  mortar c        {long}\n                  and more\n  mortar d"
        );
        let expected =
            format!("Examples:\n  mortar a b\n      explains\n  mortar c\n      {long} and more\n  mortar d");
        assert_eq!(lay_out_text(&text), expected);
    }

    #[test]
    fn subcommands_are_laid_out_too() {
        let inner = Command::new("inner").after_help("a\nb");
        let outer = lay_out(Command::new("outer").subcommand(inner));
        let inner = outer.find_subcommand("inner").and_then(Command::get_after_help);
        assert_eq!(inner.map(ToString::to_string).as_deref(), Some("a b"));
    }
}
