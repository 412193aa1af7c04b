// Embed: a web program of one's own with agents inside. People sign in to the program, and
// the page and the API below /assistant/ know them by the program's cookie.
//
// It needs ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY for a real model, and plays a
// script without. Sign in as ada with the password "engine", or as grace with "compiler".
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/page"
	"github.com/helixagents/helix/store/sqlite"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`HOST:PORT` to listen on")
	file := flag.String("db", "embed.db", "`FILE` with the conversations")
	flag.Parse()
	if err := run(*addr, *file); err != nil {
		log.Fatal(err)
	}
}

// chooseModel returns a model of the provider whose key is in the environment.
func chooseModel() (llm.Model, error) {
	reference, ok := models.Suggest()
	if !ok {
		return scripted.Demo(scripted.DemoConfig{}), nil
	}
	return models.Open(reference)
}

func run(addr, file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	model, err := chooseModel()
	if err != nil {
		return err
	}
	assistant := &helix.Agent{Name: "assistant", Instructions: "You help the people of this program.", Model: model}

	db, err := sqlite.Open(file)
	if err != nil {
		return err
	}
	defer db.Close()
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{assistant}})
	if err != nil {
		return err
	}
	accounts := &accounts{users: map[string]string{}}
	api, err := server.New(server.Config{
		Executor: rt, Backend: db, Agents: server.Agents(assistant), Authenticate: accounts.identify,
	})
	if err != nil {
		return errors.Join(err, rt.Close())
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", accounts.showHome)
	mux.HandleFunc("GET /login", showLogin)
	mux.HandleFunc("POST /login", accounts.signIn)
	mux.HandleFunc("POST /logout", accounts.signOut)
	mux.Handle("/assistant/", http.StripPrefix("/assistant", page.New(page.Config{
		API: api, Title: "Assistant", SignIn: "/login", SignOut: "/logout",
	})))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	fmt.Printf("open http://%s\n", listener.Addr())

	// Cross-origin requests to /login and /logout are refused here, those to the API by itself.
	web := server.HTTPServer("", http.NewCrossOriginProtection().Handler(mux))
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	// The order of a calm end: streams tell their readers to reconnect, requests end, turns
	// end or are left to the next start.
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	return errors.Join(err, api.Shutdown(leaving), web.Shutdown(leaving), rt.Shutdown(leaving))
}

// accounts are the program's own users and who of them is signed in. A real program keeps
// both in its database, and hashes of the passwords.
type accounts struct {
	mu    sync.Mutex
	users map[string]string // by the cookie's value
}

var passwords = map[string]string{"ada": "engine", "grace": "compiler"}

const cookieName = "session"

// identify tells the server of agents who sends a request.
func (a *accounts) identify(r *http.Request) (server.Identity, error) {
	user, ok := a.userOf(r)
	if !ok {
		return server.Identity{}, errors.New("not signed in")
	}
	return server.Identity{User: user}, nil
}

func (a *accounts) userOf(r *http.Request) (user string, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	user, ok = a.users[cookie.Value]
	return user, ok
}

func (a *accounts) signIn(w http.ResponseWriter, r *http.Request) {
	user := r.FormValue("user")
	if want, ok := passwords[user]; !ok || r.FormValue("password") != want {
		http.Error(w, "Wrong name or password.", http.StatusForbidden)
		return
	}
	value := rand.Text()
	a.mu.Lock()
	a.users[value] = user
	a.mu.Unlock()
	setCookie(w, value, 0)
	http.Redirect(w, r, localAddress(r.FormValue("return")), http.StatusSeeOther)
}

func (a *accounts) signOut(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		a.mu.Lock()
		delete(a.users, cookie.Value)
		a.mu.Unlock()
	}
	setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

func setCookie(w http.ResponseWriter, value string, maxAge int) {
	// Set Secure, too, where the program is reached over https.
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// localAddress returns an address if it is one of this program: a link to the login must not
// lead elsewhere.
func localAddress(address string) string {
	// Browsers take a backslash for a slash, and leave out tabs and line ends.
	if !strings.HasPrefix(address, "/") || strings.HasPrefix(address, "//") || strings.Contains(address, `\`) ||
		strings.ContainsFunc(address, unicode.IsControl) {
		return "/"
	}
	return address
}

func (a *accounts) showHome(w http.ResponseWriter, r *http.Request) {
	user, ok := a.userOf(r)
	if !ok {
		user = "stranger"
	}
	fmt.Fprintf(w, "<!doctype html><title>Home</title><p>Hello, %s. <a href=\"/assistant/\">Talk to the assistant.</a>", user)
}

func showLogin(w http.ResponseWriter, _ *http.Request) {
	// The form has no action, so it is sent to its own address, with what it says of the return.
	fmt.Fprint(w, `<!doctype html><title>Sign in</title><form method="post"><label>Name <input name="user" autofocus></label> <label>Password <input name="password" type="password"></label> <button>Sign in</button></form>`)
}
