package bake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix/skill"
)

// Files of marketplaces and plugins.
const (
	marketplaceFile = ".claude-plugin/marketplace.json"
	pluginFile      = ".claude-plugin/plugin.json"
	maxMarketplace  = 8 << 20
	maxRenames      = 8
)

// marketplace is what we read of a marketplace.json.
type marketplace struct {
	Metadata struct {
		// PluginRoot is the directory of plugins whose source is a path without ./ in front.
		PluginRoot string `json:"pluginRoot"`
	} `json:"metadata"`
	Plugins []plugin `json:"plugins"`
	// Renames has the new names of plugins, or null for one that was removed.
	Renames map[string]*string `json:"renames"`
}

// plugin is an entry of a marketplace, or a plugin.json, which has neither Source nor
// Strict.
type plugin struct {
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Source  json.RawMessage `json:"source"`
	Skills  paths           `json:"skills"`
	// Strict is false if the entry is the plugin's whole definition. Defaults to true: the
	// plugin's own plugin.json counts, too.
	Strict *bool `json:"strict"`
}

// paths is a path or a list of paths.
type paths []string

// UnmarshalJSON implements [json.Unmarshaler].
func (p *paths) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*p = paths{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return errors.New("skills is neither a path nor a list of paths")
	}
	*p = all
	return nil
}

// pluginSource is the source of a plugin in another repository.
type pluginSource struct {
	Source string `json:"source"`
	URL    string `json:"url"`
	Repo   string `json:"repo"`
	Path   string `json:"path"`
	Ref    string `json:"ref"`
	SHA    string `json:"sha"`
}

// decodeFile reads a JSON file of the commit. It returns false if there is none.
func (t *tree) decodeFile(ctx context.Context, file string, into any) (bool, error) {
	objects, err := t.lookUp(ctx, t.at(file))
	switch {
	case err != nil:
		return false, err
	case objects[0].kind == "":
		return false, nil
	case objects[0].kind != "blob" || objects[0].size > maxMarketplace:
		return false, fmt.Errorf("%s is not a file of at most %d bytes", t.where(file), maxMarketplace)
	}
	err = t.read(ctx, []treeEntry{{object: objects[0]}}, func(_ int, content []byte) error {
		if err := json.Unmarshal(content, into); err != nil {
			return fmt.Errorf("%s cannot be read: %w", t.where(file), err)
		}
		return nil
	})
	return err == nil, err
}

// plugin finds a plugin of the marketplace, under its new name if it was renamed.
func (t *tree) plugin(ctx context.Context, name string) (*marketplace, *plugin, error) {
	var m marketplace
	found, err := t.decodeFile(ctx, marketplaceFile, &m)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, fmt.Errorf("%s does not exist; a repository without a marketplace is a source of the type git", t.where(marketplaceFile))
	}
	asked := name
	for range maxRenames {
		if i := slices.IndexFunc(m.Plugins, func(p plugin) bool { return p.Name == name }); i >= 0 {
			return &m, &m.Plugins[i], nil
		}
		renamed, ok := m.Renames[name]
		switch {
		case !ok:
			var all []string
			for _, p := range m.Plugins {
				all = append(all, clean(p.Name))
			}
			slices.Sort(all)
			return nil, nil, fmt.Errorf("%s has no plugin %s; it has %s", t.where(marketplaceFile), clean(name), listed(all))
		case renamed == nil:
			return nil, nil, fmt.Errorf("plugin %s was removed from %s", clean(name), t.where(marketplaceFile))
		}
		name = *renamed
	}
	return nil, nil, fmt.Errorf("%s renames plugin %s more than %d times", t.where(marketplaceFile), clean(asked), maxRenames)
}

// location is where a plugin is: a directory of a repository. In the marketplace's own
// repository, there is no remote.
type location struct {
	remote *remote
	pin    pin
	dir    string
}

// ownerAndName is a repository of GitHub.
var ownerAndName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$`)

// locate returns where the plugin is. What the marketplace says is checked like what a
// manifest says; only a marketplace on this machine may refer to others on it.
func (m *marketplace) locate(p *plugin, own remote, allowLocal bool) (*location, error) {
	var dir string
	if len(p.Source) == 0 || string(p.Source) == "null" {
		return nil, errors.New("it has no source")
	}
	if json.Unmarshal(p.Source, &dir) == nil {
		if !strings.HasPrefix(dir, ".") && !path.IsAbs(dir) {
			dir = path.Join(m.Metadata.PluginRoot, dir)
		}
		dir, err := within(".", dir)
		return &location{dir: dir}, err
	}
	var s pluginSource
	if err := json.Unmarshal(p.Source, &s); err != nil {
		return nil, errors.New("its source is neither a path nor an object")
	}
	switch s.Source {
	case "github":
		if !ownerAndName.MatchString(s.Repo) {
			return nil, fmt.Errorf("%s is not a repository of GitHub", quote(s.Repo))
		}
		s.URL = "https://github.com/" + s.Repo + ".git"
	case "url", "git-subdir":
		if ownerAndName.MatchString(s.URL) {
			s.URL = "https://github.com/" + s.URL + ".git"
		}
	default:
		return nil, fmt.Errorf("its source is of the type %s; skills come from a path, url, git-subdir or github", quote(s.Source))
	}
	from, err := parseRemote(s.URL, allowLocal)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its url %w", err)
	case from.local() && !own.local():
		return nil, fmt.Errorf("its url %s is on this machine, but the marketplace is not", quote(s.URL))
	case from.private() && from.host() != own.host() && !own.local() && !own.private():
		return nil, fmt.Errorf("its url %s is on this machine or in a private network, but the marketplace is not", quote(s.URL))
	case strings.HasPrefix(from.url, "."):
		return nil, fmt.Errorf("its url %s is relative", quote(s.URL))
	case s.Ref != "" && checkRef(s.Ref) != nil:
		return nil, fmt.Errorf("its ref %w", checkRef(s.Ref))
	case s.SHA != "" && checkSHA(s.SHA) != nil:
		return nil, fmt.Errorf("its sha %w", checkSHA(s.SHA))
	}
	from.stranger = from.scheme != "file" && from.host() != own.host()
	dir, err = within(".", s.Path)
	return &location{remote: &from, pin: pin{ref: s.Ref, sha: s.SHA}, dir: dir}, err
}

// within returns a path below a directory of the repository, such as ./skills or skills/.
func within(dir, below string) (string, error) {
	joined := path.Join(dir, below)
	if path.IsAbs(below) || checkDir(joined) != nil || dir != "." && joined != dir && !strings.HasPrefix(joined, dir+"/") {
		return "", fmt.Errorf("its path %s does not lie within the plugin", quote(below))
	}
	return joined, nil
}

// said returns what the marketplace says of the plugin in a directory, as far as it decides
// what its skills are.
func (p *plugin) said(dir string) (Resolved, error) {
	listed, err := p.listed(dir)
	slices.Sort(listed)
	return Resolved{Directory: dir, Listed: slices.Compact(listed), NotStrict: p.Strict != nil && !*p.Strict}, err
}

// listed returns the directories of skills that an entry or a plugin.json lists.
func (p *plugin) listed(dir string) ([]string, error) {
	if len(p.Skills) > skill.MaxSkills {
		return nil, fmt.Errorf("it lists %d directories of skills; at most %d are allowed", len(p.Skills), skill.MaxSkills)
	}
	var all []string
	for _, one := range p.Skills {
		below, err := within(dir, one)
		if err != nil {
			return nil, err
		}
		all = append(all, below)
	}
	return all, nil
}

// pluginSkills returns the skills of a plugin: those that its plugin.json and its entry list,
// or else those in the directory skills, or else the plugin itself.
func (t *tree) pluginSkills(ctx context.Context, said *Resolved) ([]candidate, error) {
	file := path.Join(said.Directory, pluginFile)
	var own plugin
	hasOwn, err := t.decodeFile(ctx, file, &own)
	if err != nil {
		return nil, err
	}
	listed := said.Listed
	switch {
	case !hasOwn:
	case !said.NotStrict:
		more, err := own.listed(said.Directory)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.where(file), err)
		}
		listed = slices.Concat(listed, more)
	case len(own.Skills) > 0:
		return nil, fmt.Errorf("it is not strict, but %s lists skills, too", t.where(file))
	}
	if len(listed) == 0 {
		return t.defaultSkills(ctx, said.Directory)
	}
	var all []candidate
	seen := map[string]bool{}
	for _, below := range listed {
		found, err := t.skillsIn(ctx, below)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if !seen[c.path] {
				seen[c.path] = true
				all = append(all, c)
			}
		}
	}
	return all, nil
}

func (t *tree) defaultSkills(ctx context.Context, dir string) ([]candidate, error) {
	below := path.Join(dir, "skills")
	objects, err := t.lookUp(ctx, t.at(below), t.at(dir))
	switch {
	case err != nil:
		return nil, err
	case objects[0].kind == "tree":
		return t.skillsIn(ctx, below)
	case objects[1].kind != "tree":
		return nil, fmt.Errorf("%s is not a directory", t.where(dir))
	}
	found, err := t.withSkillFile(ctx, []candidate{{path: dir, tree: objects[1].id}}, []string{objects[1].id + ":SKILL.md"})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has neither a directory skills nor a SKILL.md", t.where(dir))
	}
	return found, err
}
