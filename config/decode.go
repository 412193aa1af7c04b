package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limits of a file's content. Aliases count each time they are used.
const (
	maxDepth = 60
	maxNodes = 100_000
)

// decoder decodes the file's nodes into its types.
type decoder struct {
	*source
	nodes int
	depth int
	full  bool // the limits were exceeded, which was reported
}

// option holds the options of a field's tag.
type option struct {
	name     string
	required bool
	named    bool // a mapping whose keys are the Names of a list's items
	short    bool // the field that a scalar in place of the mapping sets
	object   bool
	never    bool // the word for no limit is never
	off      bool // the word off stands for none
	policy   string
	enum     []string
	min, max *float64
}

// options reads a field's tag.
func options(f *reflect.StructField) option {
	parts := strings.Split(f.Tag.Get("yaml"), ",")
	o := option{name: parts[0]}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "required":
			o.required = true
		case "named":
			o.named = true
		case "short":
			o.short = true
		case "object":
			o.object = true
		case "never":
			o.never = true
		case "off":
			o.off = true
		case "approval", "approvers":
			o.policy = key
		case "enum":
			o.enum = strings.Split(value, "|")
		case "min", "max":
			bound, err := strconv.ParseFloat(value, 64)
			if err != nil {
				panic(fmt.Sprintf("config: tag of %s: %v", f.Name, err))
			}
			if key == "min" {
				o.min = &bound
			} else {
				o.max = &bound
			}
		default:
			panic(fmt.Sprintf("config: tag of %s: unknown option %q", f.Name, part))
		}
	}
	return o
}

// fields returns the keys of a struct.
func fields(t reflect.Type) map[string]field {
	found := map[string]field{}
	for i := range t.NumField() {
		f := t.Field(i)
		if o := options(&f); f.IsExported() && o.name != "" && o.name != "-" {
			found[o.name] = field{index: i, option: o}
		}
	}
	return found
}

type field struct {
	index  int
	option option
}

// resolve follows aliases. It returns false for an empty node, and for one that exceeds the
// limits, which it reports.
func (d *decoder) resolve(n *yaml.Node, path string) (*yaml.Node, bool) {
	for hops := 0; n.Kind == yaml.AliasNode && n.Alias != nil; hops++ {
		if hops == maxDepth {
			return nil, false
		}
		n = n.Alias
	}
	d.nodes++
	if d.nodes > maxNodes || d.depth > maxDepth {
		if !d.full {
			d.problem(at(n), path, "the file is too large: at most %d values, nested at most %d deep", maxNodes, maxDepth)
		}
		d.full = true
	}
	if d.full || n.Kind == 0 || n.Kind == yaml.AliasNode {
		return nil, false
	}
	return n, n.Kind != yaml.ScalarNode || n.ShortTag() != "!!null"
}

// entry is a key of a mapping and its value.
type entry struct {
	key, value *yaml.Node
	name       string
	path       string
}

// entries returns the valid entries of a mapping.
func (d *decoder) entries(n *yaml.Node, path string) []entry {
	var out []entry
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.problem(at(key), path, "a key must be a string")
			continue
		case key.ShortTag() == "!!merge":
			d.problem(at(key), path, "merge keys are not supported; write the keys out")
			continue
		}
		below := join(path, key.Value)
		if line, ok := seen[key.Value]; ok {
			d.problem(at(key), below, "duplicate key; first defined in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		d.places[below] = place{at(key), at(value)}
		out = append(out, entry{key: key, value: value, name: key.Value, path: below})
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value decodes a node into v.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, o *option) {
	d.depth++
	defer func() { d.depth-- }()
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *JSON:
		d.json(n, path, target, o)
		return
	case *Schema:
		d.schema(n, path, target)
		return
	case *AgentSkills:
		d.skills(n, path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if o.off && n.Kind != yaml.MappingNode {
			d.off(n, path, v.Type(), o)
			return
		}
		fresh := reflect.New(v.Type().Elem())
		d.value(n, path, fresh.Elem(), o)
		v.Set(fresh)
	case reflect.Struct:
		d.record(n, path, v)
	case reflect.Slice:
		d.list(n, path, v, o)
	case reflect.Map:
		d.texts(n, path, v)
	default:
		d.scalar(n, path, v, o)
	}
}

// off reads the word for none in the place of a mapping.
func (d *decoder) off(n *yaml.Node, path string, t reflect.Type, o *option) {
	if n.Kind == yaml.ScalarNode {
		if text, ok := d.expand(n, path); !ok || text == wordOff {
			return
		}
	}
	d.problem(at(n), path, "expected %s, found %s", expectedOf(t, o), describe(n))
}

// skills decodes the skills of an agent: all, a list of names, or a mapping.
func (d *decoder) skills(n *yaml.Node, path string, v reflect.Value) {
	switch n.Kind {
	case yaml.MappingNode:
		d.record(n, path, v)
	case yaml.SequenceNode:
		d.places[path+".only"] = place{at(n), at(n)}
		d.list(n, path+".only", v.FieldByName("Only"), &option{})
	default:
		if n.Value != allSkills {
			d.problem(at(n), path, "expected %s, a list of names or a mapping of keys to values, found %s", allSkills, describe(n))
		}
	}
}

// allSkills is the value of an agent's skills that stands for all of them.
const allSkills = "all"

// record decodes a struct.
func (d *decoder) record(n *yaml.Node, path string, v reflect.Value) {
	known := fields(v.Type())
	if n.Kind == yaml.ScalarNode {
		for name, f := range known {
			if f.option.short {
				d.places[join(path, name)] = place{at(n), at(n)}
				d.scalar(n, path, v.Field(f.index), &f.option)
				return
			}
		}
	}
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), path, "expected a mapping of keys to values, found %s", describe(n))
		return
	}
	given := map[string]bool{}
	for _, e := range d.entries(n, path) {
		f, ok := known[e.name]
		if !ok {
			names := slices.Sorted(maps.Keys(known))
			hint := didYouMean(e.name, names)
			if hint == "" {
				hint = "; expected one of " + listed(names)
			}
			d.problem(at(e.key), e.path, "unknown key%s", hint)
			continue
		}
		given[e.name] = true
		d.filled(e, v.Field(f.index), &f.option)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if f := known[name]; f.option.required && !given[name] {
			d.wrongKey(path, "the key %s is missing", name)
		}
	}
}

// filled decodes a key's value into v. An empty value is an empty mapping or list; other
// types require one.
func (d *decoder) filled(e entry, v reflect.Value, o *option) {
	value, ok := d.resolve(e.value, e.path)
	switch {
	case ok:
		d.value(e.value, e.path, v, o)
	case value != nil && (o.required || !mayBeEmpty(v.Type(), o)):
		d.wrongKey(e.path, "expected %s, found nothing", expectedOf(v.Type(), o))
	}
}

func mayBeEmpty(t reflect.Type, o *option) bool {
	switch t {
	case reflect.TypeFor[JSON]():
		return o.object
	case reflect.TypeFor[Schema]():
		return false
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Slice || t.Kind() == reflect.Map
}

// list decodes a slice from a list, or from a mapping whose keys are names.
func (d *decoder) list(n *yaml.Node, path string, v reflect.Value, o *option) {
	if o.named {
		if n.Kind != yaml.MappingNode {
			d.problem(at(n), path, "expected a mapping of names to what they stand for, found %s", describe(n))
			return
		}
		for _, e := range d.entries(n, path) {
			item := reflect.New(v.Type().Elem()).Elem()
			item.FieldByName("Name").SetString(e.name)
			if value, ok := d.resolve(e.value, e.path); !ok {
				if value != nil {
					d.wrongKey(e.path, "expected a mapping of keys to values, found nothing")
				}
				continue
			}
			d.named(e, item)
			v.Set(reflect.Append(v, item))
		}
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(at(n), path, "expected a list, found %s", describe(n))
		return
	}
	for i, child := range n.Content {
		item := reflect.New(v.Type().Elem()).Elem()
		below := fmt.Sprintf("%s[%d]", path, i)
		d.places[below] = place{at(child), at(child)}
		if value, ok := d.resolve(child, below); !ok {
			if value != nil {
				d.problem(at(child), below, "expected %s, found nothing", expected(item.Type()))
			}
			continue
		}
		d.value(child, below, item, &option{})
		v.Set(reflect.Append(v, item))
	}
}

// named decodes one of a mapping's named items. A model may be just its reference.
func (d *decoder) named(e entry, item reflect.Value) {
	if n, ok := d.resolve(e.value, e.path); ok && n.Kind == yaml.ScalarNode {
		if model, ok := reflect.TypeAssert[*Model](item.Addr()); ok {
			d.places[e.path+".model"] = place{at(n), at(n)}
			d.scalar(n, e.path, reflect.ValueOf(&model.Model).Elem(), &option{required: true})
			return
		}
	}
	d.value(e.value, e.path, item, &option{})
}

// texts decodes a map of strings.
func (d *decoder) texts(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), path, "expected a mapping of keys to values, found %s", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range d.entries(n, path) {
		text := reflect.New(v.Type().Elem()).Elem()
		d.filled(e, text, &option{})
		v.SetMapIndex(reflect.ValueOf(e.name), text)
	}
}

// scalar decodes a string, a number or the like. The content of environment variables is
// read as if it were in the file; messages show only the file's text.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value, o *option) {
	want := expected(v.Type())
	if o.never {
		want = expectedOf(v.Type(), o)
	}
	wrong := func() { d.problem(at(n), path, "expected %s, found %s", want, describe(n)) }
	if n.Kind != yaml.ScalarNode {
		wrong()
		return
	}
	text, ok := d.expand(n, path)
	if !ok {
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *Duration:
		d.duration(n, path, text, target, o)
		return
	case *Limit:
		if text == o.unlimited() {
			*target = unlimited
			return
		}
	case *Rate:
		if text == o.unlimited() {
			*target = unlimited
			return
		}
	case *Expression:
		*target = Expression(text)
		d.expression(n, path, text, o)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if tag := n.ShortTag(); tag != "!!str" && n.Value == text && tag != "!!timestamp" && tag != "!!int" && tag != "!!float" {
			wrong()
			return
		}
		v.SetString(text)
		if o.required && text == "" {
			d.problem(at(n), path, "expected a text, found none")
			return
		}
		if len(o.enum) > 0 && !slices.Contains(o.enum, text) {
			d.problem(at(n), path, "expected %s, found %s%s", listed(o.enum), describe(n), didYouMean(text, o.enum))
		}
	case reflect.Bool:
		switch text {
		case "true":
			v.SetBool(true)
		case "false":
		default:
			wrong()
		}
	case reflect.Int, reflect.Int64:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			wrong()
			return
		}
		v.SetInt(number)
		d.bounds(n, path, float64(number), o)
	case reflect.Float64:
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
			wrong()
			return
		}
		v.SetFloat(number)
		d.bounds(n, path, number, o)
	default:
		panic("config: no way to read a " + v.Type().String())
	}
}

func (d *decoder) bounds(n *yaml.Node, path string, number float64, o *option) {
	low, high := o.min != nil && number < *o.min, o.max != nil && number > *o.max
	switch {
	case !low && !high:
	case o.min != nil && o.max != nil:
		d.problem(at(n), path, "expected a number from %v to %v, found %s", *o.min, *o.max, describe(n))
	case low:
		d.problem(at(n), path, "expected a number of at least %v, found %s", *o.min, describe(n))
	default:
		d.problem(at(n), path, "expected a number of at most %v, found %s", *o.max, describe(n))
	}
}

// unlimited is the [Limit] for none.
const unlimited = -1

// never is the [Duration] for none.
const never = -1

// The words for none.
const (
	wordUnlimited = "unlimited"
	wordNever     = "never"
	wordOff       = "off"
)

// unlimited is the word for no limit.
func (o *option) unlimited() string {
	if o.never {
		return wordNever
	}
	return wordUnlimited
}

// maxDuration is the longest duration.
const maxDuration = 100 * 365 * 24 * time.Hour

func (d *decoder) duration(n *yaml.Node, path, text string, target *Duration, o *option) {
	if o.never && text == wordNever {
		*target = never
		return
	}
	value, ok := parseDuration(text)
	switch {
	case !ok && o.never:
		d.problem(at(n), path, "expected a duration such as 90s, 1h30m or 7d, or never, found %s", describe(n))
	case !ok:
		d.problem(at(n), path, "expected a duration such as 90s, 1h30m or 7d, found %s", describe(n))
	case value < 0:
		d.problem(at(n), path, "expected a duration that is not negative, found %s", describe(n))
	case value > maxDuration:
		d.problem(at(n), path, "expected a duration of at most 100 years, found %s", describe(n))
	}
	*target = Duration(value)
}

// parseDuration parses a duration that may begin with days.
func parseDuration(text string) (time.Duration, bool) {
	var days float64
	if before, after, ok := strings.Cut(text, "d"); ok {
		number, err := strconv.ParseFloat(before, 64)
		if err != nil || math.Abs(number) > 1e6 || math.IsNaN(number) {
			return 0, false
		}
		days, text = number, after
		if text == "" {
			return time.Duration(days * float64(24*time.Hour)), true
		}
	}
	rest, err := time.ParseDuration(text)
	return time.Duration(days*float64(24*time.Hour)) + rest, err == nil
}

// expected describes a type for an error.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a duration such as 90s, 1h30m or 7d"
	case reflect.TypeFor[Limit]():
		return "a whole number or unlimited"
	case reflect.TypeFor[Rate]():
		return "a number or unlimited"
	case reflect.TypeFor[Expression]():
		return "a CEL expression"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Struct:
		return "a mapping of keys to values"
	default:
		return "a text"
	}
}

// expectedOf describes the values of a key for an error.
func expectedOf(t reflect.Type, o *option) string {
	switch {
	case len(o.enum) > 0:
		return listed(o.enum)
	case o.policy == "approval":
		return "always, never or a CEL expression"
	case o.never && t == reflect.TypeFor[Limit]():
		return "a whole number or never"
	case o.never && t == reflect.TypeFor[Rate]():
		return "a number or never"
	case o.never:
		return expected(t) + ", or never"
	case o.off:
		return expected(t.Elem()) + ", or off"
	case o.named:
		return "a mapping of names to what they stand for"
	case t == reflect.TypeFor[Schema]():
		return "a JSON Schema of type object"
	case t == reflect.TypeFor[JSON]():
		return "a value"
	case t.Kind() == reflect.Pointer:
		return expected(t.Elem())
	}
	return expected(t)
}

// maxShown is the maximum length of a value in an error.
const maxShown = 60

// describe describes a node for an error. It shows the file's text, never the content of an
// environment variable.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	text := []rune(n.Value)
	if len(text) > maxShown {
		text = append(text[:maxShown], '…')
	}
	return strconv.Quote(string(text))
}
