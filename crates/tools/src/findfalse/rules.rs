//! Owns the two rules: which arrays and which structures are findings, and in which order.

use super::Settings;
use super::locks::{self, Heat};
use super::report::{Finding, Kind, Report};
use super::types::{Field, Id, Shape, Struct, Type, Types, without_arguments};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Deeper than this no type is nested; a damaged file may be.
const DEPTH: u32 = 32;

/// Looks at every type and every static variable.
pub fn check(types: &Types, settings: &Settings) -> Report {
    let mut search = Search { types, settings, holds: HashMap::new(), found: BTreeMap::new() };
    let mut maybe = BTreeMap::new();
    for variable in &types.statics {
        let holder = Holder {
            name: variable.path.to_string(),
            module: variable.path.to_string(),
            place: variable.place.clone(),
        };
        search.arrays(variable.of, &holder, DEPTH);
        if let Some(text) = search.pointer_to_locks(variable.of) {
            maybe.insert(variable.path.to_string(), text);
        }
    }
    let mut ids: Vec<Id> = types.by_id.keys().copied().collect();
    ids.sort_unstable();
    for id in ids {
        let Some(Type::Struct(s)) = types.by_id.get(&id) else { continue };
        if is_closure(&s.path) {
            continue;
        }
        search.structure(s);
        for field in &s.fields {
            let Some(of) = field.of else { continue };
            // What `Vec`, `MaybeUninit` or a pointer has is found where *they* are had.
            if s.path.starts_with("core::")
                || s.path.starts_with("alloc::")
                || is_tuple(&s.path)
                || is_slice_of(&s.path, &["&mut ", "*const ", "*mut ", "&"])
            {
                continue;
            }
            let holder = Holder {
                name: format!("{}.{}", without_arguments(&s.path), field.name),
                module: s.path.to_string(),
                place: s.place.clone(),
            };
            search.arrays(of, &holder, DEPTH);
        }
    }
    search.arrays_of_nobody();
    let mut findings: Vec<Finding> = search.found.into_values().collect();
    findings.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.name.cmp(&b.name)).then_with(|| a.of.cmp(&b.of)));
    Report {
        binary: String::new(),
        line: settings.line,
        types: types.by_id.len(),
        findings,
        maybe: maybe.into_iter().collect(),
    }
}

/// Who has the array.
struct Holder {
    name: String,
    module: String,
    place: Option<super::types::Place>,
}

struct Search<'a> {
    types: &'a Types,
    settings: &'a Settings,
    /// The hottest lock or atomic inside, by type.
    holds: HashMap<Id, Option<Heat>>,
    found: BTreeMap<(Kind, String, String), Finding>,
}

/// A lock or atomic inside a structure.
struct Hot {
    path: String,
    offset: u64,
    size: u64,
    heat: Heat,
}

impl Search<'_> {
    /// Whether it is a lock or atomic itself. Names of typedefs count as well as those of structures.
    fn is_lock(&self, id: Id) -> Option<Heat> {
        let mut id = id;
        for _ in 0..DEPTH {
            match self.types.by_id.get(&id)? {
                Type::Atomic { .. } => return Some(Heat::Sometimes),
                Type::Struct(s) => return locks::by_name(&s.path, &self.settings.lock_types),
                Type::Plain { name, .. } => return locks::by_name(name, &self.settings.lock_types),
                Type::Alias { name, of } => {
                    if let Some(heat) = name.as_ref().and_then(|name| locks::by_name(name, &self.settings.lock_types)) {
                        return Some(heat);
                    }
                    id = (*of)?;
                }
                Type::Array { .. } | Type::Pointer { .. } => return None,
            }
        }
        None
    }

    /// The hottest lock or atomic that lies in it, not behind a pointer.
    fn holds(&mut self, id: Id, depth: u32) -> Option<Heat> {
        if let Some(known) = self.holds.get(&id) {
            return *known;
        }
        let depth = depth.checked_sub(1)?;
        let types = self.types;
        let heat = self.is_lock(id).or_else(|| match types.bare(id)?.1 {
            Type::Struct(s) => s
                .fields
                .iter()
                .filter_map(|field| Some(locks::by_field(&field.name, self.holds(field.of?, depth)?)))
                .max(),
            Type::Array { of, .. } => self.holds((*of)?, depth),
            _ => None,
        });
        self.holds.insert(id, heat);
        heat
    }

    /// Locks and atomics that lie in it, a lock with what it guards as one.
    fn hot(&mut self, id: Id, name: &str, offset: u64, depth: u32, into: &mut Vec<Hot>) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if self.holds(id, DEPTH).is_none() || into.len() > 256 {
            return;
        }
        if let Some(heat) = self.is_lock(id) {
            let last = name.rsplit('.').next().unwrap_or(name);
            let heat = locks::by_field(last, heat);
            into.push(Hot { path: name.to_owned(), offset, size: self.types.size(id).unwrap_or(1), heat });
            return;
        }
        let types = self.types;
        match types.bare(id).map(|(_, of)| of) {
            Some(Type::Struct(s)) => {
                for field in &s.fields {
                    if let Some(of) = field.of {
                        self.hot(of, &format!("{name}.{}", field.name), offset + field.offset, depth, into);
                    }
                }
            }
            // The first and the last element say where the array begins and ends to be written.
            Some(Type::Array { of: Some(of), count: Some(count) }) if *count > 0 => {
                let each = types.size(*of).unwrap_or(0);
                self.hot(*of, &format!("{name}[0]"), offset, depth, into);
                if *count > 1 {
                    self.hot(*of, &format!("{name}[{}]", count - 1), offset + each * (count - 1), depth, into);
                }
            }
            _ => {}
        }
    }

    /// Rule 2: a lock or atomic beside what others read.
    fn structure(&mut self, s: &Struct) {
        if s.shape == Shape::Either
            || s.fields.len() < 2
            || locks::by_name(&s.path, &self.settings.lock_types).is_some()
            || is_tuple(&s.path)
        {
            return;
        }
        let line = self.settings.line;
        let lines = |offset: u64, size: u64| offset / line..=(offset + size.max(1) - 1) / line;
        // What of which member is written by many, and the extent of each member.
        let mut hot = Vec::new();
        let mut extents = Vec::new();
        for field in &s.fields {
            let Some((of, size)) = field.of.and_then(|of| Some((of, self.types.size(of)?))) else { continue };
            if size == 0 || locks::is_padding(&field.name) {
                continue;
            }
            let mut inside = Vec::new();
            self.hot(of, &field.name, field.offset, DEPTH, &mut inside);
            hot.extend(inside.into_iter().map(|hot| (field, hot)));
            extents.push((field, size));
        }
        let mut crowded: Vec<u64> = hot.iter().flat_map(|(_, hot)| lines(hot.offset, hot.size)).collect();
        crowded.sort_unstable();
        crowded.dedup();
        // A member that fills several lines has the same neighbours in none of them but its ends.
        for at in crowded {
            let here: Vec<&(&Field, Hot)> =
                hot.iter().filter(|(_, hot)| lines(hot.offset, hot.size).contains(&at)).collect();
            let Some((owner, hottest)) = here
                .iter()
                .max_by_key(|(_, hot)| (hot.heat, std::cmp::Reverse(hot.offset)))
                .map(|(owner, hot)| (*owner, hot))
            else {
                continue;
            };
            let mut beside: Vec<(u64, u64, String)> = extents
                .iter()
                .filter(|(field, size)| !std::ptr::eq(*field, owner) && lines(field.offset, *size).contains(&at))
                .map(|(field, _)| (self.read_mostly(field), field.offset, field.name.to_string()))
                .collect();
            if beside.is_empty() {
                continue;
            }
            beside.sort_by_key(|(weight, offset, _)| (std::cmp::Reverse(*weight), *offset));
            let weight = beside.first().map_or(0, |(weight, ..)| *weight);
            let score = heat_weight(hottest.heat) * 10 + weight * 5 + beside.len().min(9) as u64 / 2;
            self.add(Finding {
                kind: Kind::Structure,
                score,
                ours: self.is_ours(&s.path, s.place.as_ref().map(|place| &*place.file)),
                module: s.path.to_string(),
                name: format!("{}.{}", without_arguments(&s.path), owner.name),
                of: s.path.to_string(),
                size: s.size,
                total: None,
                per_line: None,
                field: hottest.path.clone(),
                offset: hottest.offset,
                beside: beside.into_iter().map(|(.., name)| name).collect(),
                place: s.place.clone(),
                instances: 1,
                allowed: None,
            });
        }
    }

    /// How much it hurts to lose this field's line: what is followed on each use weighs more than a number.
    fn read_mostly(&mut self, field: &Field) -> u64 {
        const NAMES: &[&str] =
            &["ops", "dev", "next", "key", "hash", "gen", "genid", "mtu", "state", "config", "table", "handler"];
        let Some(of) = field.of else { return 1 };
        let is_named = field.name.split('_').any(|word| NAMES.contains(&word));
        let weight = match self.types.bare(of).map(|(_, of)| of) {
            _ if self.holds(of, DEPTH).is_some() => 2,
            Some(Type::Pointer { .. }) => 4,
            Some(Type::Struct(s)) if is_pointer_like(&s.path) => 4,
            _ => 1,
        };
        weight + u64::from(is_named)
    }

    /// Rule 1: arrays below this type, in what `holder` has of it.
    fn arrays(&mut self, id: Id, holder: &Holder, depth: u32) {
        let Some(depth) = depth.checked_sub(1) else { return };
        let types = self.types;
        let Some((_, of)) = types.bare(id) else { return };
        match of {
            Type::Array { of: Some(of), count } => {
                self.array(*of, *count, holder);
                self.arrays(*of, holder, depth);
            }
            Type::Struct(s) => {
                if let Some(of) = self.elements(s) {
                    self.array(of, None, holder);
                    self.arrays(of, holder, depth);
                } else if self.is_container(&s.path) {
                    // The arguments of `Option` are those of its `Some`.
                    let variants = s.fields.iter().filter(|_| s.shape == Shape::Either).filter_map(|field| field.of);
                    for of in s.arguments.iter().copied().chain(variants) {
                        self.arrays(of, holder, depth);
                    }
                }
            }
            _ => {}
        }
    }

    /// The element type of what is an array in another dress: `Vec`, `VecDeque`, `Box<[T]>`, slices.
    fn elements(&self, s: &Struct) -> Option<Id> {
        let bare = without_arguments(&s.path);
        if matches!(bare.as_str(), "alloc::vec::Vec" | "alloc::collections::vec_deque::VecDeque" | "std::vector") {
            return s.arguments.first().copied();
        }
        if is_slice_of(&s.path, &["alloc::boxed::Box<", "&mut ", "*const ", "*mut ", "&"]) {
            let data = s.fields.iter().find(|field| &*field.name == "data_ptr")?.of?;
            let Type::Pointer { to } = self.types.bare(data)?.1 else { return None };
            return *to;
        }
        // In the debug information the argument of `Arc<[T]>` is T.
        let is_counted = is_slice_of(&s.path, &["alloc::sync::Arc<", "alloc::rc::Rc<"]);
        s.arguments.first().copied().filter(|_| is_counted)
    }

    /// Whether what it has is what its arguments are: `Box`, `Arc`, `Option`, `UnsafeCell` and their like.
    fn is_container(&self, path: &str) -> bool {
        ["alloc::", "core::", "std::"].iter().any(|start| path.starts_with(start))
    }

    /// `Vec`s and the like that only functions have: the element's type is all there is to name them by.
    fn arrays_of_nobody(&mut self) {
        let types = self.types;
        let mut had: HashSet<String> = self
            .found
            .values()
            .filter(|found| found.kind == Kind::Array && found.ours)
            .map(|found| without_arguments(&found.of))
            .collect();
        for of in types.by_id.values() {
            let Type::Struct(s) = of else { continue };
            let Some(of) = self.elements(s) else { continue };
            let element = types.name(of);
            let bare = without_arguments(&element);
            if types.is_rust && self.is_ours(&element, None) && !had.contains(&bare) {
                self.array(of, None, &Holder { name: bare.clone(), module: bare.clone(), place: None });
                had.insert(bare);
            }
        }
    }

    fn array(&mut self, of: Id, count: Option<u64>, holder: &Holder) {
        let line = self.settings.line;
        let (Some(size), Some(heat)) = (self.types.size(of), self.holds(of, DEPTH)) else { return };
        let total = count.map(|count| size.saturating_mul(count));
        if size == 0 || size >= line || total.is_some_and(|total| total <= line) {
            return;
        }
        let mut hot = Vec::new();
        self.hot(of, "", 0, DEPTH, &mut hot);
        let first = hot.iter().max_by_key(|hot| hot.heat);
        let path = first.map_or_else(String::new, |hot| hot.path.trim_start_matches('.').to_owned());
        let element = self.types.name(of);
        let ours = self.is_ours(&holder.module, holder.place.as_ref().map(|place| &*place.file));
        self.add(Finding {
            kind: Kind::Array,
            // An array whose length is not known here may be one element long.
            score: heat_weight(heat) * 10 + if total.is_some() { 15 } else { 5 } + (line / size).min(9) / 2,
            ours,
            name: holder.name.clone(),
            module: holder.module.clone(),
            of: element,
            size,
            total,
            per_line: Some(line.div_ceil(size)),
            field: path,
            offset: first.map_or(0, |hot| hot.offset),
            beside: Vec::new(),
            place: holder.place.clone(),
            instances: 1,
            allowed: None,
        });
    }

    /// C says `lock_t *locks`, and not whether it is one or a thousand.
    fn pointer_to_locks(&mut self, id: Id) -> Option<String> {
        let types = self.types;
        let Type::Pointer { to: Some(to) } = types.bare(id)?.1 else { return None };
        self.is_lock(*to)?;
        let size = types.size(*to).filter(|size| *size < self.settings.line)?;
        Some(format!(
            "points to {} of {size} bytes: if to an array, {} of them share a line",
            types.name(*to),
            self.settings.line.div_ceil(size)
        ))
    }

    fn is_ours(&self, path: &str, file: Option<&str>) -> bool {
        let path = path.trim_start_matches(['&', '*', '[', '(']);
        let path = path.strip_prefix("mut ").or_else(|| path.strip_prefix("const ")).unwrap_or(path);
        let Some((first, _)) = path.split_once("::").filter(|_| self.types.is_rust) else {
            // C: whatever the system's headers do not declare.
            return !self.types.is_rust
                && !file.is_some_and(|file| file.starts_with("/usr/include") || file.starts_with("/usr/lib"));
        };
        if self.settings.ours.is_empty() {
            self.types.crates.get(first).copied().unwrap_or(false)
        } else {
            self.settings.ours.iter().any(|ours| first.starts_with(ours.as_str()))
        }
    }

    /// Instances of one generic type are one finding: the worst.
    fn add(&mut self, finding: Finding) {
        let element = if finding.kind == Kind::Array { without_arguments(&finding.of) } else { String::new() };
        let key = (finding.kind, finding.name.clone(), element);
        match self.found.get_mut(&key) {
            None => {
                self.found.insert(key, finding);
            }
            Some(known) => {
                let instances = known.instances + u64::from(known.of != finding.of || known.module != finding.module);
                if finding.score > known.score {
                    *known = finding;
                }
                known.instances = instances;
            }
        }
    }
}

fn heat_weight(heat: Heat) -> u64 {
    match heat {
        Heat::Once => 1,
        Heat::Sometimes => 3,
        Heat::Lock => 5,
        Heat::References => 7,
    }
}

fn is_closure(path: &str) -> bool {
    path.contains("{closure_env") || path.contains("{async_") || path.contains("{coroutine")
}

fn is_tuple(path: &str) -> bool {
    path.is_empty() || path.starts_with('(')
}

/// Whether it is one of these pointers, to elements without a known number.
fn is_slice_of(path: &str, pointers: &[&str]) -> bool {
    pointers.iter().any(|pointer| path.strip_prefix(pointer).is_some_and(|to| to.starts_with('[')))
}

fn is_pointer_like(path: &str) -> bool {
    const POINTERS: &[&str] = &[
        "alloc::sync::Arc",
        "alloc::rc::Rc",
        "alloc::boxed::Box",
        "alloc::vec::Vec",
        "core::ptr::",
        "&",
        "*",
        "alloc::string::String",
        "alloc::collections::",
    ];
    POINTERS.iter().any(|pointer| path.starts_with(pointer))
}
