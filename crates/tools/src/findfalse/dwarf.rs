//! Owns the reading of DWARF: from the bytes of a program to [`Types`].
//!
//! One pass over the entries; those that cannot matter are skipped without being decoded.

use super::types::{Field, Id, Place, Shape, Static, Struct, Type, Types};
use gimli::{AttributeValue, EndianSlice, RunTimeEndian, constants as dw};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;
type Dwarf<'a> = gimli::Dwarf<Bytes<'a>>;
type Unit<'a> = gimli::Unit<Bytes<'a>>;

/// Where a distribution keeps debug information apart from programs.
const APART: &str = "/usr/lib/debug/.build-id";

const HOW_TO: &str = "for Rust build with the dev profile, or set debug = true (not line-tables-only) in the Cargo profile; for C compile with -g";

/// Every type and static variable of a program, from itself or from the file with its debug information.
pub fn read(binary: &Path) -> Result<Types, String> {
    let name = binary.display();
    let bytes = std::fs::read(binary).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let file = parse(&bytes).map_err(|error| {
        format!("{name} is no program that can be read ({error}); give an ELF executable or library")
    })?;
    if file.kind() == object::ObjectKind::Relocatable {
        return Err(format!(
            "{name} is an object file, whose debug information is not linked yet; give the program it becomes part of"
        ));
    }
    if has_types(&file) {
        return read_file(&file).map_err(|error| format!("{name}: the debug information is damaged: {error}"));
    }
    let Some(apart) = apart(&file) else {
        return Err(format!("{name} has no debug information: {HOW_TO}"));
    };
    let bytes = std::fs::read(&apart).map_err(|_| {
        format!("{name} has no debug information, and {} does not exist: install the package with its debug symbols, or {HOW_TO}", apart.display())
    })?;
    let wrong = |error: String| format!("{}: {error}", apart.display());
    let file = parse(&bytes).map_err(wrong)?;
    read_file(&file).map_err(|error| wrong(format!("the debug information is damaged: {error}"))).and_then(|types| {
        if types.by_id.is_empty() { Err(wrong(format!("no types in it: {HOW_TO}"))) } else { Ok(types) }
    })
}

fn parse(bytes: &[u8]) -> Result<object::File<'_>, String> {
    object::File::parse(bytes).map_err(|error| error.to_string())
}

fn has_types(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

fn apart(file: &object::File<'_>) -> Option<PathBuf> {
    let id = file.build_id().ok()??;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(APART).join(hex.get(..2)?).join(format!("{}.debug", hex.get(2..)?)))
}

fn read_file(file: &object::File<'_>) -> Result<Types, String> {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, String> {
        match file.section_by_name(id.name()) {
            Some(section) => section.uncompressed_data().map_err(|error| error.to_string()),
            None => Ok(Cow::Borrowed(&[])),
        }
    };
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
    let mut reader = Reader {
        types: Types { pointer: if file.is_64() { 8 } else { 4 }, ..Types::default() },
        names: HashMap::new(),
    };
    let mut units = dwarf.units();
    let text = |error: gimli::Error| error.to_string();
    let mut skeletons = 0;
    while let Some(header) = units.next().map_err(text)? {
        let unit = dwarf.unit(header).map_err(text)?;
        skeletons += usize::from(unit.dwo_id.is_some());
        reader.unit(&dwarf, &unit).map_err(text)?;
    }
    if reader.types.by_id.is_empty() && skeletons > 0 {
        return Err(
            "it is split into .dwo files; build with -C split-debuginfo=off (Rust) or -gno-split-dwarf (C)".into()
        );
    }
    if reader.types.by_id.is_empty() {
        return Err(format!("there are lines in it and no types: {HOW_TO}"));
    }
    reader.name_the_nameless();
    Ok(reader.types)
}

/// rustc puts the methods of `module::Type` into `module::{impl#3}`.
fn without_impl(path: &str) -> &str {
    path.rfind("::{impl#").map_or(path, |at| &path[..at])
}

struct Reader {
    types: Types,
    names: HashMap<(usize, u64), Rc<str>>,
}

/// A variable's name, type and place, as far as its declaration says them.
type Declared = (Rc<str>, Option<Id>, Option<Place>);

/// What encloses an entry.
#[derive(Clone)]
struct Frame {
    /// Namespaces so far.
    path: Rc<str>,
    /// The structure whose members come now.
    of: Option<Id>,
    /// The array whose bounds come now.
    array: Option<Id>,
}

/// The attributes that matter, of whatever entry.
#[derive(Default)]
struct Attributes<'a> {
    name: Option<Bytes<'a>>,
    size: Option<u64>,
    align: Option<u64>,
    of: Option<Id>,
    offset: u64,
    count: Option<u64>,
    file: Option<u64>,
    line: u64,
    is_declaration: bool,
    is_artificial: bool,
    is_static: bool,
    specification: Option<Id>,
}

impl Reader {
    fn unit<'a>(&mut self, dwarf: &Dwarf<'a>, unit: &Unit<'a>) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let root = Frame { path: Rc::from(""), of: None, array: None };
        let mut frames: Vec<Frame> = Vec::new();
        // Declarations that a definition elsewhere in the unit points to: C++ and Rust put a static's name there.
        let mut declared: HashMap<Id, Declared> = HashMap::new();
        while !entries.is_empty() {
            let depth = usize::try_from(entries.next_depth()).unwrap_or(0);
            let at = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            frames.truncate(depth);
            let outer = frames.last().cloned().unwrap_or_else(|| root.clone());
            let id = global(unit, at);
            let tag = abbreviation.tag();
            let mut inner = Frame { path: outer.path.clone(), of: None, array: None };
            let wants = match tag {
                dw::DW_TAG_subprogram => {
                    !outer.path.is_empty() && !self.types.files.contains_key(without_impl(&outer.path))
                }
                tag => matters(tag),
            };
            if !wants {
                entries.skip_attributes(abbreviation.attributes())?;
                if abbreviation.has_children() {
                    set(&mut frames, depth, inner);
                }
                continue;
            }
            let mut a = Attributes::default();
            let mut language = None;
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                if attribute.name() == dw::DW_AT_language {
                    language = Some(attribute.value());
                }
                a.take(dwarf, unit, attribute);
            }
            let path = |a: &Attributes<'_>| join(&outer.path, a.name);
            match tag {
                dw::DW_TAG_compile_unit | dw::DW_TAG_partial_unit => {
                    if language == Some(AttributeValue::Language(dw::DW_LANG_Rust)) {
                        self.types.is_rust = true;
                        self.note_crate(unit);
                    }
                }
                dw::DW_TAG_namespace => inner.path = path(&a),
                dw::DW_TAG_subprogram => {
                    if let Some(place) = self.place(dwarf, unit, &a) {
                        self.types.files.insert(Rc::from(without_impl(&outer.path)), place);
                    }
                }
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                    let path = path(&a);
                    inner.path = path.clone();
                    inner.of = Some(id);
                    if !a.is_declaration {
                        let shape = if tag == dw::DW_TAG_union_type { Shape::Either } else { Shape::Struct };
                        let place = self.place(dwarf, unit, &a);
                        self.types.by_id.insert(
                            id,
                            Type::Struct(Struct {
                                path,
                                module: outer.path.clone(),
                                size: a.size.unwrap_or(0),
                                align: a.align,
                                shape,
                                fields: Vec::new(),
                                arguments: Vec::new(),
                                place,
                            }),
                        );
                    }
                }
                dw::DW_TAG_variant_part | dw::DW_TAG_variant => {
                    inner.of = outer.of;
                    if let Some(Type::Struct(s)) = outer.of.and_then(|of| self.types.by_id.get_mut(&of)) {
                        s.shape = Shape::Either;
                    }
                }
                dw::DW_TAG_member | dw::DW_TAG_inheritance if !a.is_declaration => {
                    let name = a.name.map_or_else(|| Rc::from(""), |name| self.intern(name));
                    if let Some(Type::Struct(s)) = outer.of.and_then(|of| self.types.by_id.get_mut(&of))
                        && !(a.is_artificial && name.is_empty())
                    {
                        s.fields.push(Field { name, offset: a.offset, of: a.of });
                    }
                }
                dw::DW_TAG_template_type_parameter => {
                    if let (Some(Type::Struct(s)), Some(of)) =
                        (outer.of.and_then(|of| self.types.by_id.get_mut(&of)), a.of)
                    {
                        s.arguments.push(of);
                    }
                }
                dw::DW_TAG_array_type => {
                    inner.array = Some(id);
                    self.types.by_id.insert(id, Type::Array { of: a.of, count: None });
                }
                dw::DW_TAG_subrange_type => {
                    if let Some(Type::Array { count, .. }) =
                        outer.array.and_then(|array| self.types.by_id.get_mut(&array))
                        && let Some(more) = a.count
                    {
                        *count = Some(count.unwrap_or(1).saturating_mul(more));
                    }
                }
                dw::DW_TAG_typedef => {
                    let name = Some(path(&a));
                    self.types.by_id.insert(id, Type::Alias { name, of: a.of });
                }
                dw::DW_TAG_const_type | dw::DW_TAG_volatile_type | dw::DW_TAG_restrict_type => {
                    self.types.by_id.insert(id, Type::Alias { name: None, of: a.of });
                }
                dw::DW_TAG_atomic_type => {
                    self.types.by_id.insert(id, Type::Atomic { of: a.of });
                }
                dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                    self.types.by_id.insert(id, Type::Pointer { to: a.of });
                }
                dw::DW_TAG_base_type | dw::DW_TAG_enumeration_type => {
                    let name = path(&a);
                    inner.path = name.clone();
                    self.types.by_id.insert(id, Type::Plain { size: a.size.unwrap_or(0), name });
                }
                dw::DW_TAG_variable => {
                    let place = self.place(dwarf, unit, &a);
                    let (mut path, mut of, mut where_) = (path(&a), a.of, place);
                    if let Some((name, ty, place)) = a.specification.and_then(|of| declared.get(&of)) {
                        path = name.clone();
                        of = of.or(*ty);
                        where_ = where_.or_else(|| place.clone());
                    }
                    if a.is_declaration {
                        declared.insert(id, (path, of, where_));
                    } else if let (true, Some(of)) = (a.is_static, of) {
                        self.types.statics.push(Static { path, of, place: where_ });
                    }
                }
                _ => {}
            }
            if abbreviation.has_children() {
                set(&mut frames, depth, inner);
            }
        }
        Ok(())
    }

    /// C's `typedef struct { … } name;` has its only name in the typedef.
    fn name_the_nameless(&mut self) {
        let names: Vec<(Id, Rc<str>)> = self
            .types
            .by_id
            .values()
            .filter_map(|of| match of {
                Type::Alias { name: Some(name), of: Some(of) } => Some((*of, name.clone())),
                _ => None,
            })
            .collect();
        for (id, name) in names {
            if let Some(Type::Struct(s)) = self.types.by_id.get_mut(&id)
                && s.path == s.module
            {
                s.path = name;
            }
        }
    }

    fn intern(&mut self, name: Bytes<'_>) -> Rc<str> {
        // Names lie once in the file: their place there is as good as their text.
        let key = (name.slice().as_ptr().addr(), name.slice().len() as u64);
        self.names.entry(key).or_insert_with(|| Rc::from(name.to_string_lossy().as_ref())).clone()
    }

    fn place(&mut self, dwarf: &Dwarf<'_>, unit: &Unit<'_>, a: &Attributes<'_>) -> Option<Place> {
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(a.file?)?;
        let text = |value| dwarf.attr_string(unit, value).ok().map(|bytes| bytes.to_string_lossy().into_owned());
        let mut path = PathBuf::from(text(file.path_name())?);
        if path.is_relative()
            && let Some(directory) = file.directory(header).and_then(text)
        {
            path = Path::new(&directory).join(path);
        }
        if path.is_relative()
            && let Some(directory) = unit.comp_dir
        {
            path = Path::new(directory.to_string_lossy().as_ref()).join(path);
        }
        Some(Place { file: Rc::from(path.to_string_lossy().as_ref()), line: a.line })
    }

    /// rustc names a unit `src/lib.rs/@/crate.hash-cgu.0`, and says in which folder that is.
    fn note_crate(&mut self, unit: &Unit<'_>) {
        let text =
            |bytes: Option<Bytes<'_>>| bytes.map(|bytes| bytes.to_string_lossy().into_owned()).unwrap_or_default();
        let (name, folder) = (text(unit.name), text(unit.comp_dir));
        let Some((source, object)) = name.split_once("/@/") else { return };
        let Some(crate_name) = object.split('.').next() else { return };
        let is_foreign = |path: &str| {
            path.contains("/rustc/")
                || path.contains("/registry/src/")
                || path.contains("/git/checkouts/")
                || path.contains("/rustlib/src/")
        };
        let is_ours = !is_foreign(&folder) && !is_foreign(source) && !source.starts_with("/rustc");
        let known = self.types.crates.entry(crate_name.to_owned()).or_insert(is_ours);
        *known &= is_ours;
    }
}

fn set(frames: &mut Vec<Frame>, depth: usize, frame: Frame) {
    debug_assert!(frames.len() <= depth, "the frames of what came before are gone");
    while frames.len() < depth {
        frames.push(frame.clone());
    }
    frames.push(frame);
}

fn matters(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_compile_unit
            | dw::DW_TAG_partial_unit
            | dw::DW_TAG_namespace
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_variant_part
            | dw::DW_TAG_variant
            | dw::DW_TAG_member
            | dw::DW_TAG_inheritance
            | dw::DW_TAG_template_type_parameter
            | dw::DW_TAG_array_type
            | dw::DW_TAG_subrange_type
            | dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type
            | dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_base_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_variable
    )
}

fn join(path: &Rc<str>, name: Option<Bytes<'_>>) -> Rc<str> {
    match name {
        None => path.clone(),
        Some(name) if path.is_empty() => Rc::from(name.to_string_lossy().as_ref()),
        Some(name) => Rc::from(format!("{path}::{}", name.to_string_lossy())),
    }
}

fn global(unit: &Unit<'_>, at: gimli::UnitOffset) -> Id {
    at.to_debug_info_offset(&unit.header).map_or(usize::MAX, |offset| offset.0)
}

impl<'a> Attributes<'a> {
    fn take(&mut self, dwarf: &Dwarf<'a>, unit: &Unit<'a>, attribute: gimli::Attribute<Bytes<'a>>) {
        let value = attribute.value();
        let reference = |value: &AttributeValue<Bytes<'a>>| match value {
            AttributeValue::UnitRef(at) => Some(global(unit, *at)),
            AttributeValue::DebugInfoRef(at) => Some(at.0),
            _ => None,
        };
        match attribute.name() {
            dw::DW_AT_name => self.name = dwarf.attr_string(unit, value).ok(),
            dw::DW_AT_byte_size => self.size = value.udata_value(),
            dw::DW_AT_alignment => self.align = value.udata_value(),
            dw::DW_AT_type => self.of = reference(&value),
            dw::DW_AT_specification => self.specification = reference(&value),
            dw::DW_AT_data_member_location => self.offset = member_offset(&value),
            dw::DW_AT_data_bit_offset => self.offset = value.udata_value().unwrap_or(0) / 8,
            dw::DW_AT_count => self.count = value.udata_value(),
            // C's `[n]` has the bounds 0 to n - 1; -1 is no bound.
            dw::DW_AT_upper_bound => self.count = value.udata_value().and_then(|last| last.checked_add(1)),
            dw::DW_AT_decl_file => {
                self.file = match value {
                    AttributeValue::FileIndex(index) => Some(index),
                    other => other.udata_value(),
                }
            }
            dw::DW_AT_decl_line => self.line = value.udata_value().unwrap_or(0),
            dw::DW_AT_declaration => self.is_declaration = value == AttributeValue::Flag(true),
            dw::DW_AT_artificial => self.is_artificial = value == AttributeValue::Flag(true),
            dw::DW_AT_location => {
                // A fixed address, and nothing but it: what is reached by a register is on a stack, and thread-locals add
                // to the address.
                const ADDRESS: u8 = dw::DW_OP_addr.0;
                const INDEX: u8 = dw::DW_OP_addrx.0;
                if let Some(expression) = value.exprloc_value() {
                    let bytes = expression.0.slice();
                    let word = usize::from(unit.header.address_size());
                    self.is_static = match bytes.first() {
                        Some(&ADDRESS) => bytes.len() == 1 + word,
                        Some(&INDEX) => {
                            bytes[1..].iter().take_while(|byte| **byte & 0x80 != 0).count() + 2 == bytes.len()
                        }
                        _ => false,
                    };
                }
            }
            _ => {}
        }
    }
}

/// A number; before DWARF 3 an expression that adds one.
fn member_offset(value: &AttributeValue<Bytes<'_>>) -> u64 {
    const PLUS: u8 = dw::DW_OP_plus_uconst.0;
    if let Some(offset) = value.udata_value() {
        return offset;
    }
    let Some(expression) = value.exprloc_value() else { return 0 };
    match expression.0.slice().split_first() {
        Some((&PLUS, rest)) => {
            rest.iter().enumerate().take(9).fold(0, |sum, (n, byte)| sum | u64::from(byte & 0x7F) << (7 * n))
        }
        _ => 0,
    }
}
