package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// The files of a new project.
//
//go:embed all:templates
var templates embed.FS

func initCommand() *cobra.Command {
	var inGo bool
	var replace string
	cmd := &cobra.Command{
		Use:   "init [DIRECTORY]",
		Short: "Begin a project: an agent in a file, or a Go program with a test",
		Long: `Write the files of a new project into a directory, by default this one: a helix.yaml
with an agent, or with --go a program with an agent, its page and a test. Both work
without an API key. Files that are there already are never changed: if there is one of
the same name, nothing is written.

A Go program needs the module github.com/helixagents/helix. Where it cannot be fetched,
--replace names a directory with its source, such as a clone of the repository.`,
		Example: `  helix init
  helix init --go shop
  helix init --go --replace ../helix shop`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("name one directory (see %s --help)", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if replace != "" && !inGo {
				return usageError{errors.New("--replace is for Go programs: add --go")}
			}
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if inGo {
				return initGo(cmd.OutOrStdout(), dir, replace)
			}
			return initFile(cmd.OutOrStdout(), dir)
		},
	}
	cmd.Flags().BoolVar(&inGo, "go", false, "write a Go program with a test")
	cmd.Flags().StringVar(&replace, "replace", "", "`DIRECTORY` with the source of Helix, for the go.mod of the program")
	return cmd
}

// initFile writes a helix.yaml.
func initFile(out io.Writer, dir string) error {
	if err := writeTemplates(out, dir, "file"); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nNext:\n%s  helix serve                        the page at http://%s\n", changeTo(dir), defaultAddr)
	fmt.Fprint(out, "  helix chat                         the same agent in the terminal\n"+
		"  helix run shop \"What time is it?\"  one message, from a script\n\n"+
		"Change helix.yaml while the server runs. \"helix check\" lists what is wrong with it.\n")
	return nil
}

// initGo writes a Go program.
func initGo(out io.Writer, dir, replace string) error {
	module, err := moduleName(dir)
	if err != nil {
		return err
	}
	mod := "module " + module + "\n\ngo 1.26\n"
	if replace != "" {
		if replace, err = filepath.Abs(replace); err != nil {
			return err
		}
		if source, err := os.ReadFile(filepath.Join(replace, "go.mod")); err != nil || !declaresHelix(string(source)) {
			return usageError{fmt.Errorf("--replace %s: it has no go.mod of %s", replace, helixModule)}
		}
		mod += "\nrequire " + helixModule + " v0.0.0\n\nreplace " + helixModule + " => " + quoteModPath(replace) + "\n"
	}
	if err := writeTemplates(out, dir, "go", projectFile{"go.mod", mod}); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nNext:\n%s  go mod tidy\n  go test\n  go run .      the page at http://%s\n", changeTo(dir), defaultAddr)
	if replace == "" {
		fmt.Fprintf(out, "\nIf go mod tidy cannot fetch %s, name a clone of it in go.mod:\n"+
			"  go mod edit -require=%[1]s@v0.0.0 -replace=%[1]s=DIRECTORY\n", helixModule)
	}
	return nil
}

const helixModule = "github.com/helixagents/helix"

// declaresHelix reports whether a go.mod is that of Helix.
func declaresHelix(mod string) bool {
	first, _, _ := strings.Cut(mod, "\n")
	return strings.TrimSpace(first) == "module "+helixModule
}

// changeTo returns the line that changes to a directory, if it is not this one.
func changeTo(dir string) string {
	if filepath.Clean(dir) == "." {
		return ""
	}
	if strings.HasPrefix(dir, "-") {
		dir = "./" + dir
	}
	return "  cd " + shellWord(dir) + "\n"
}

// moduleName returns a name for the module of a directory.
func moduleName(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(`[^a-z0-9._-]+`).ReplaceAllString(strings.ToLower(filepath.Base(path)), "-")
	if name = strings.Trim(name, ".-_"); name == "" {
		return "agent", nil
	}
	return name, nil
}

// quoteModPath writes a path as go.mod wants it.
func quoteModPath(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return strconv.Quote(path)
}

var plainPath = regexp.MustCompile(`^[A-Za-z0-9/._~@+:-]+$`)

// projectFile is a file of a new project.
type projectFile struct{ name, text string }

// writeTemplates writes the files of a kind of project, after others, or nothing if one is
// there already.
func writeTemplates(out io.Writer, dir, kind string, files ...projectFile) error {
	from := "templates/" + kind
	entries, err := templates.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := templates.ReadFile(from + "/" + entry.Name())
		if err != nil {
			return err
		}
		// The suffix keeps the Go tool from compiling it here.
		files = append(files, projectFile{strings.TrimSuffix(entry.Name(), ".tmpl"), string(text)})
	}
	for _, file := range files {
		if _, err := os.Lstat(filepath.Join(dir, file.name)); err == nil {
			return fmt.Errorf("%s is there already; nothing was written", filepath.Join(dir, file.name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		path := filepath.Join(dir, file.name)
		if err := writeNew(path, file.text); err != nil {
			return err
		}
		fmt.Fprintf(out, "wrote %s\n", visible(path))
	}
	return nil
}

// writeNew writes a file that does not exist yet.
func writeNew(path, text string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.WriteString(text)
	return err
}
