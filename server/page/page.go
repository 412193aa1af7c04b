package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// The files of the page. They have no build step.
//
//go:embed files
var embedded embed.FS

// Config configures a page. Only API is required.
type Config struct {
	// API answers every request that is not for the page. It is a [server.Server], or a
	// handler that passes requests on to one.
	API http.Handler
	// Title is the name of the page. Defaults to "Helix".
	Title string
	// SignIn is the address where people sign in, such as "/login", if the program has a
	// sign-in of its own: Config.Authenticate of the server then recognises, for example, a
	// cookie. The page sends people there with its own address in the query parameter
	// "return"; follow it only if it begins with a single slash and has neither backslashes
	// nor control characters. Without SignIn, the page asks
	// people for a bearer token.
	SignIn string
	// SignOut is where the page sends a POST request when people sign out. Without it, only
	// people who entered a token can sign out.
	SignOut string
}

// New returns a handler that serves the page at / and API at every other path. Mount it
// under any prefix that is cut off again: the page finds its files and its API relative to
// its own address.
//
//	mux.Handle("/support/", http.StripPrefix("/support", page.New(page.Config{API: api})))
//
// It panics if API is nil.
func New(config Config) http.Handler {
	if config.API == nil {
		panic("page: Config.API is not set")
	}
	return &handler{api: config.API, files: readFiles(&config)}
}

// handler serves the page's files by their paths, and everything else by the API.
type handler struct {
	api   http.Handler
	files map[string]file
}

// file is a file with the name by which browsers ask whether it has changed.
type file struct {
	name string
	body []byte
	etag string
}

// readFiles returns the page's files by the paths at which they are served.
func readFiles(config *Config) map[string]file {
	index := strings.NewReplacer("{{title}}", html.EscapeString(cmp.Or(config.Title, "Helix")), "{{attributes}}", attributes(config))
	files := map[string]file{}
	err := fs.WalkDir(embedded, "files", func(from string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(from)
		at := "/page" + strings.TrimPrefix(from, "files")
		if at == "/page/index.html" {
			at, body = "/", []byte(index.Replace(string(body)))
		}
		sum := sha256.Sum256(body)
		files[at] = file{name: path.Base(from), body: body, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		return err
	})
	if err != nil {
		panic(err) // the directory is embedded under that name
	}
	return files
}

// attributes tells the page's scripts where people sign in and out.
func attributes(config *Config) string {
	var all strings.Builder
	for _, attribute := range [][2]string{{"data-sign-in", config.SignIn}, {"data-sign-out", config.SignOut}} {
		if attribute[1] != "" {
			all.WriteString(" " + attribute[0] + `="` + html.EscapeString(attribute[1]) + `"`)
		}
	}
	return all.String()
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := r.URL.Path
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.api.ServeHTTP(w, r)
		return
	}
	switch of, ok := h.files[at]; {
	case ok:
		guard(w.Header())
		w.Header().Set("Etag", of.etag)
		http.ServeContent(w, r, of.name, time.Time{}, bytes.NewReader(of.body))
	case at == "": // the prefix without its slash, from which relative addresses would be wrong
		redirectToSlash(w, r)
	case strings.HasPrefix(at, "/page/"):
		guard(w.Header())
		http.Error(w, "404 page not found", http.StatusNotFound)
	default:
		h.api.ServeHTTP(w, r)
	}
}

// redirectToSlash sends a request for a directory to the address that ends with a slash.
// The address is relative, because what was cut off from it is not known here.
func redirectToSlash(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.HasSuffix(asked, "/") { // it would redirect for ever
		guard(w.Header())
		http.Error(w, "the prefix is cut off with its slash: mount the page with http.StripPrefix(\"/name\", …)", http.StatusNotFound)
		return
	}
	to := "./" + asked[strings.LastIndexByte(asked, '/')+1:] + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// guard keeps other sites from framing the page, and keeps the page from loading anything
// from other servers, including pictures: their servers would learn who reads a
// conversation.
func guard(header http.Header) {
	header.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
}
