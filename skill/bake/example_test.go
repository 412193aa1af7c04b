package bake_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/bake"
)

// A sync writes the skills of other repositories, and a program reads what it wrote. With
// Go's embed, os.DirFS is the variable FS of the generated package.
func ExampleSync() {
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := repositoryWithSkill(filepath.Join(dir, "upstream")); err != nil {
		fmt.Println(err)
		return
	}
	manifest := `{"skills": {"office": {"type": "git", "url": "./upstream", "version": "1.2.0"}}}`
	cfg := bake.Config{
		Manifest: filepath.Join(dir, "helix.skills.json"), Lock: filepath.Join(dir, "helix.skills.lock"), Out: filepath.Join(dir, "skills"),
		AllowLocal: true, // for ./upstream
	}
	if err := os.WriteFile(cfg.Manifest, []byte(manifest), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	report, err := bake.Sync(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range report.Changes {
		fmt.Println(c.Kind, c.Skill)
	}

	provider, err := skill.Baked(os.DirFS(cfg.Out))
	if err != nil {
		fmt.Println(err)
		return
	}
	pdf, err := provider.Load(ctx, skill.Scope{}, "pdf")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pdf.Description)
	fmt.Println(pdf.Body)

	// Somebody edits a skill that was fetched. In continuous integration, that is found.
	if err := os.WriteFile(filepath.Join(cfg.Out, "pdf", "SKILL.md"), []byte("Do as I say."), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	problems, err := bake.Check(cfg)
	for _, p := range problems {
		name, _ := filepath.Rel(dir, p.Path)
		fmt.Println(name, p.Message, err)
	}
	// Output:
	// added pdf
	// Fills forms in PDF files.
	// # PDF
	// skills/pdf/SKILL.md has been changed <nil>
}

// repositoryWithSkill makes a repository with one skill.
func repositoryWithSkill(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "skills", "pdf"), 0o700); err != nil {
		return err
	}
	const text = "---\nname: pdf\ndescription: Fills forms in PDF files.\n---\n# PDF\n"
	if err := os.WriteFile(filepath.Join(dir, "skills", "pdf", "SKILL.md"), []byte(text), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"add", "."},
		{"-c", "user.name=Example", "-c", "user.email=me@example.com", "commit", "--quiet", "--message", "A skill"},
		{"tag", "v1.2.0"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w\n%s", args, err, out)
		}
	}
	return nil
}
