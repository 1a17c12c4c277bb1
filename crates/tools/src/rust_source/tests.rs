use super::*;

#[test]
fn comments_and_literals_go_and_code_stays_where_it_was() {
    let text = "let a = \"unsafe\"; // unsafe\nunsafe { b('u', b'\\'', '\\'') } /* unsafe /* nested */ unsafe */ c";
    let code = code_only(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.lines().count(), 2);
    let found: Vec<_> = code.lines().flat_map(|line| words(line).map(|(_, word)| word)).collect();
    assert_eq!(found, ["let", "a", "unsafe", "b", "c"]);
}

#[test]
fn raw_strings_end_where_their_hashes_do() {
    let code = code_only("x(r#\"a \" unsafe\"#, br\"\\\", c\"unsafe\", r#type) y");
    let found: Vec<_> = words(&code).map(|(_, word)| word).collect();
    assert_eq!(found, ["x", "r", "type", "y"]);
}

#[test]
fn a_lifetime_is_not_the_beginning_of_a_character() {
    let code = code_only("fn f<'a>(x: &'a str, y: char) -> &'a str { if y == '→' { x } else { unsafe_name } }");
    assert!(words(&code).any(|(_, word)| word == "unsafe_name"));
    assert!(words(&code).any(|(_, word)| word == "else"));
}
