//! Owns the picture of a program's types: as much of DWARF as false sharing needs.

use std::collections::HashMap;
use std::rc::Rc;

/// A type's name in the debug information: the offset of its entry.
pub type Id = usize;

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Path as the compiler wrote it.
    pub file: Rc<str>,
    /// Line, 0 if only the file is known.
    pub line: u64,
}

/// One member of a structure.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name; empty in C's anonymous members.
    pub name: Rc<str>,
    /// Bytes from the structure's beginning.
    pub offset: u64,
    /// What it is.
    pub of: Option<Id>,
}

/// How the members of a structure lie to one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One after the other.
    Struct,
    /// Over one another: a union, or an enum with data.
    Either,
}

/// A structure, class, union or enum with data.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Name with its namespaces.
    pub path: Rc<str>,
    /// Namespaces alone.
    pub module: Rc<str>,
    /// Bytes.
    pub size: u64,
    /// Bytes, if the compiler says so.
    pub align: Option<u64>,
    /// How members lie.
    pub shape: Shape,
    /// Members in the order of the debug information.
    pub fields: Vec<Field>,
    /// Type arguments, in order.
    pub arguments: Vec<Id>,
    /// Where it is declared, if the compiler says so.
    pub place: Option<Place>,
}

/// A type.
#[derive(Clone, Debug)]
pub enum Type {
    /// Members.
    Struct(Struct),
    /// Elements of one type; no count if the program decides it while running.
    Array {
        /// What the elements are.
        of: Option<Id>,
        /// How many.
        count: Option<u64>,
    },
    /// Another name, or `const`, `volatile`.
    Alias {
        /// The other name, if it is one.
        name: Option<Rc<str>>,
        /// For what.
        of: Option<Id>,
    },
    /// C's `_Atomic`.
    Atomic {
        /// Of what.
        of: Option<Id>,
    },
    /// A pointer or reference.
    Pointer {
        /// To what.
        to: Option<Id>,
    },
    /// A number, an enum without data, a function.
    Plain {
        /// Bytes.
        size: u64,
        /// Its name.
        name: Rc<str>,
    },
}

/// A variable that exists once.
#[derive(Clone, Debug)]
pub struct Static {
    /// Name with its namespaces.
    pub path: Rc<str>,
    /// What it is.
    pub of: Id,
    /// Where it is declared.
    pub place: Option<Place>,
}

/// Everything that was read from one program.
#[derive(Default, Debug)]
pub struct Types {
    /// Types by their entries.
    pub by_id: HashMap<Id, Type>,
    /// Variables that exist once.
    pub statics: Vec<Static>,
    /// A file that holds code of this namespace: Rust's debug information says where functions are, not where types are.
    pub files: HashMap<Rc<str>, Place>,
    /// Rust crates by name, with whether they were built from here and not from a registry or the toolchain.
    pub crates: HashMap<String, bool>,
    /// Bytes of a pointer.
    pub pointer: u64,
    /// Some part was compiled from Rust.
    pub is_rust: bool,
}

impl Types {
    /// What it is, other names and qualifiers taken off.
    pub fn bare(&self, mut id: Id) -> Option<(Id, &Type)> {
        // A cycle of names would be a damaged file; it must not hang us.
        for _ in 0..64 {
            match self.by_id.get(&id)? {
                Type::Alias { of, .. } => id = (*of)?,
                other => return Some((id, other)),
            }
        }
        None
    }

    /// Bytes that one of it takes.
    pub fn size(&self, id: Id) -> Option<u64> {
        self.size_within(id, 64)
    }

    fn size_within(&self, id: Id, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        match self.bare(id)?.1 {
            Type::Struct(s) => Some(s.size),
            Type::Array { of, count } => self.size_within((*of)?, depth)?.checked_mul((*count)?),
            Type::Atomic { of } => self.size_within((*of)?, depth),
            Type::Pointer { .. } => Some(self.pointer),
            Type::Plain { size, .. } => Some(*size),
            Type::Alias { .. } => None,
        }
    }

    /// Its name as a programmer would write it.
    pub fn name(&self, id: Id) -> String {
        self.name_within(id, 16)
    }

    fn name_within(&self, id: Id, depth: u32) -> String {
        let Some(depth) = depth.checked_sub(1) else { return "…".into() };
        let of = |of: &Option<Id>| of.map_or_else(|| "void".into(), |id| self.name_within(id, depth));
        match self.by_id.get(&id) {
            None => "?".into(),
            Some(Type::Alias { name: Some(name), .. }) => name.to_string(),
            Some(Type::Alias { name: None, of: to }) => of(to),
            Some(Type::Struct(s)) => s.path.to_string(),
            Some(Type::Array { of: element, count: Some(count) }) => format!("[{}; {count}]", of(element)),
            Some(Type::Array { of: element, count: None }) => format!("[{}]", of(element)),
            Some(Type::Atomic { of: inner }) => format!("_Atomic {}", of(inner)),
            Some(Type::Pointer { to }) => format!("*{}", of(to)),
            Some(Type::Plain { name, .. }) => name.to_string(),
        }
    }
}

/// The path without type arguments: one name for every instance.
pub fn without_arguments(path: &str) -> String {
    let mut depth = 0_usize;
    let mut bare = String::with_capacity(path.len());
    let mut before = ' ';
    for c in path.chars() {
        match c {
            '<' => depth += 1,
            // The arrow of a function's type closes nothing.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(c),
            _ => {}
        }
        before = c;
    }
    bare
}
