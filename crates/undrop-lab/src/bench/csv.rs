//! Lines of CSV: fields with quotes where they need them.

/// Quotes a field if it needs quotes. Line ends become blanks.
pub(crate) fn quote(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Splits a line into its fields; `None` if a quote is not closed.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if is_quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    (!is_quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_as_they_were_quoted() {
        let fields = ["plain", "", "a, b", "say \"no\"", "\""];
        let line: Vec<String> = fields.iter().map(|field| quote(field)).collect();
        assert_eq!(split(&line.join(",")).unwrap(), fields);
        assert_eq!(split("a,\"b"), None);
        assert_eq!(quote("two\nlines"), "two lines");
    }
}
