// Package skill defines skills: instructions for a kind of task that an agent reads when
// it needs them, in the Agent Skills format (https://agentskills.io). A skill is a
// directory with a file SKILL.md, whose frontmatter names and describes the skill and whose
// body is the instructions, and any other files that the instructions refer to.
//
// An agent knows the names and descriptions of its skills all the time, and reads bodies
// and files on demand. Package extension/skills does that; this package has the types, and
// the providers that need nothing but the standard library. Package skill/files reads
// skills from directories.
package skill

import (
	"context"
	"io"
)

// FileName is the name of the file that makes a directory a skill.
const FileName = "SKILL.md"

// Limits of skills.
const (
	// MaxName is how many bytes a name has at most.
	MaxName = 64
	// FormatDescription is how many characters the format allows a description to have. Published
	// skills exceed it.
	FormatDescription = 1024
	// MaxDescription, MaxCompatibility and MaxLicense are how many characters the fields have at
	// most.
	MaxDescription   = 4096
	MaxCompatibility = 500
	MaxLicense       = 500
	// MaxAllowedTools is how many tools a skill may list, and MaxAllowedTool how many bytes each
	// has at most.
	MaxAllowedTools = 256
	MaxAllowedTool  = 200
	// MaxMetadata is how many further entries the frontmatter may have, and MaxMetadataText how
	// many bytes a key or value has at most.
	MaxMetadata     = 64
	MaxMetadataText = 1024
	// MaxBody is how many bytes SKILL.md has at most. The format recommends less than 500
	// lines.
	MaxBody = 512 << 10
	// MaxFiles is how many files a skill may have, and MaxBytes how many bytes they may have
	// together.
	MaxFiles = 2000
	MaxBytes = 32 << 20
	// MaxPath is how many bytes the path of a file has at most.
	MaxPath = 512
	// MaxSkills is how many skills a provider may list.
	MaxSkills = 2000
)

// Metadata describes a skill. It is what a catalogue shows.
type Metadata struct {
	// Name is unique within a provider; see [CheckName].
	Name string `json:"name"`
	// Description says what the skill does and when to use it.
	Description string `json:"description"`
	License     string `json:"license,omitempty"`
	// Compatibility says what the skill needs of its environment.
	Compatibility string `json:"compatibility,omitempty"`
	// AllowedTools are the tools that the skill is made for, such as "fetch" or
	// "Bash(git:*)". They never permit anything that an agent may not do anyway.
	AllowedTools []string          `json:"allowedTools,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	// Digest identifies the content of the skill; see [Digest]. It changes with every file.
	Digest string `json:"digest,omitempty"`
}

// Skill is a skill with its instructions.
type Skill struct {
	Metadata
	// Body is what SKILL.md has below its frontmatter.
	Body string
	// Files are the skill's other files, sorted by path.
	Files []File
}

// File is a file of a skill, other than SKILL.md.
type File struct {
	// Path is relative to the skill's directory, with slashes.
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Executable bool   `json:"executable,omitempty"`
	// Content is read by [Static] only. What a provider returns has none; see
	// [Provider.Open].
	Content []byte `json:"-"`
}

// Scope is for whom skills are listed. A provider may have others for each tenant, user and
// agent; most have the same for all.
type Scope struct {
	Tenant string
	UserID string
	Agent  string
}

// Provider has skills. It is safe for concurrent use.
type Provider interface {
	// List returns the skills of a scope, sorted by name, each with a digest. A skill that is
	// invalid is left out; see [Reporter].
	List(ctx context.Context, scope Scope) ([]Metadata, error)
	// Load returns a skill with its body and the list of its files. A skill that List does
	// not return is [session.ErrNotFound].
	Load(ctx context.Context, scope Scope, name string) (*Skill, error)
	// Open returns the content of a file of a skill, or of SKILL.md itself. A file that does
	// not exist is [session.ErrNotFound].
	Open(ctx context.Context, scope Scope, name, path string) (io.ReadCloser, error)
}

// Lister is implemented by an extension that has skills, for those who ask which skills an
// agent has.
type Lister interface {
	// Skills returns the skills of a scope, sorted by name.
	Skills(ctx context.Context, scope Scope) ([]Metadata, error)
}
