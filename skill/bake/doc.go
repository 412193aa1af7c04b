// Package bake writes skills of other repositories into a directory of this one, where
// they are reviewed, committed and embedded like any other file: `helix skills sync`.
//
// A [Manifest] names the sources, git repositories and plugin marketplaces. [Sync] reads
// them with git, without a checkout, and writes the skills with a [Lock] that has the
// commit of each source and the hash of each file. [Check] compares the three, offline.
// What was written is read with [skill.Baked]; this package is not part of a program that
// uses skills.
package bake
