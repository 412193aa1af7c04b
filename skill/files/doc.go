// Package files reads skills from directories, on disk or in an [fs.FS]: each directory
// with a file SKILL.md is a skill.
package files
