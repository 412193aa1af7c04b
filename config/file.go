package config

import (
	"encoding/json"
	"time"
)

// The comments in this file are the reference of helix.yaml: a test takes them
// into schema.json and docs/helix-yaml.md.

// File is a helix.yaml that was read and found valid.
type File struct {
	// The version of the format, which is 1.
	Version int `yaml:"version,required"`
	// The models that agents can use, by name. A model is written as its reference
	// alone, or with settings.
	Models []Model `yaml:"models,named"`
	// The agents, by name. The first that is not internal is the one a chat gets that
	// asks for none.
	Agents []Agent `yaml:"agents,named,required"`
	// The tools that agents can use, by the names that models call them by.
	Tools []Tool `yaml:"tools,named"`
	// How the server is reached, and by whom.
	Server Server `yaml:"server"`
	// Where sessions are kept: a path or sqlite:PATH, postgres://…, redis://… or memory:.
	// Defaults to a file in the user's data directory.
	Store string `yaml:"store"`
	// Where streams are kept, if not with the sessions: an address as in store.
	Streams string `yaml:"streams"`
	// Where turns run, and how runs are held on to and recovered.
	Runtime Runtime `yaml:"runtime"`
	// What is done about expired sessions, beside what the runtime does by itself.
	Cleanup Cleanup `yaml:"cleanup"`

	source *source
}

// Model is a language model and how to ask it.
type Model struct {
	// Name is the model's key in the file.
	Name string `yaml:"-"`
	// Which model answers: provider/model, with one of the providers openai,
	// openai-chat, anthropic and gemini, as in anthropic/claude-sonnet-4-5; after an @
	// the address of another server that speaks the provider's wire, as in
	// openai-chat/llama3.2:3b@http://127.0.0.1:11434/v1. Or demo, the scripted model
	// that needs no key. Or auto, a model of the first provider whose key is in the
	// environment, and demo if there is none.
	Model string `yaml:"model,required"`
	// Models to ask in turn where this one fails in a way that asking again would not
	// mend: references as in model. They have the same settings, but neither the key
	// nor headers and options: those are for this model's server.
	Fallbacks []string `yaml:"fallbacks"`
	// The API key. Defaults to the provider's environment variable, such as
	// OPENAI_API_KEY; HELIX_MODEL_KEY where the reference has an address. Write it as
	// ${NAME}, not into the file.
	Key string `yaml:"key"`
	// How freely the model chooses its words, from 0 on.
	Temperature *float64 `yaml:"temperature,min=0,max=2"`
	// The most tokens of one reply. Defaults to the provider's limit.
	MaxTokens int `yaml:"maxTokens,min=1"`
	// Only the most likely words that together have this probability are considered.
	TopP *float64 `yaml:"topP,min=0,max=1"`
	// Only so many of the most likely words are considered.
	TopK *int `yaml:"topK,min=1"`
	// How much the model avoids words that it has used.
	PresencePenalty *float64 `yaml:"presencePenalty,min=-2,max=2"`
	// How much the model avoids words the more often it has used them.
	FrequencyPenalty *float64 `yaml:"frequencyPenalty,min=-2,max=2"`
	// Makes replies as repeatable as the provider can.
	Seed *int64 `yaml:"seed"`
	// Texts at which a reply ends.
	Stop []string `yaml:"stop"`
	// Headers that are sent with every request to this model, for gateways.
	Headers map[string]string `yaml:"headers"`
	// What only this provider knows, handed to it as it is.
	Options JSON `yaml:"options,object"`
	// Whether the provider should cache the part of the prompt that stays the same.
	Cache bool `yaml:"cache"`
	// How long one attempt at a reply may take. Defaults to 10m.
	Timeout Duration `yaml:"timeout"`
	// The pause of the demo model before each word. Defaults to 30ms.
	Pace *Duration `yaml:"pace"`
}

// Agent is an agent.
type Agent struct {
	// Name is the agent's key in the file.
	Name string `yaml:"-"`
	// What the agent is for. People see it in lists, other agents when they choose
	// whom to call.
	Description string `yaml:"description"`
	// The system prompt: who the agent is, what it does and how.
	Instructions string `yaml:"instructions"`
	// Whether only other agents may call it: no user can start, resume or branch its
	// sessions, and it is not listed. At least one agent must not be internal. Defaults
	// to false.
	Internal bool `yaml:"internal"`
	// The name of one of the models, or a reference as in models.NAME.model. Defaults
	// to the model that is called default, or the only one.
	Model string `yaml:"model"`
	// The names of the tools that the agent may call.
	Tools []string `yaml:"tools"`
	// The most model calls of a turn, or unlimited. Defaults to 50.
	MaxSteps Limit `yaml:"maxSteps,min=1"`
	// The JSON Schema of the agent's result, of type object. With it, the agent
	// finishes a turn by giving such a value.
	Output Schema `yaml:"output"`
	// The custom state that a new session begins with.
	State JSON `yaml:"state,object"`
	// The keys of the state that users may set when they start a session. Operators may
	// set every key. Defaults to none.
	OpenState []string `yaml:"openState"`
	// Agents that this one may call as tools, each call a session of its own: their
	// names, or their names with more.
	SubAgents []SubAgent `yaml:"subAgents"`
	// Agents that live on between calls: their names, or their names with a mode.
	Companions []Companion `yaml:"companions"`
	// Agents on other servers that this one may call as tools.
	Remotes []Remote `yaml:"remotes"`
	// How long a session may wait for somebody, or stay interrupted, before it expires,
	// counted from the end of its last run. Defaults to never.
	SessionExpiry Duration `yaml:"sessionExpiry"`
}

// SubAgent is an agent that another may call.
type SubAgent struct {
	// The agent's name.
	Agent string `yaml:"agent,required,short"`
	// What to call it for. Defaults to the agent's own description.
	Description string `yaml:"description"`
	// The JSON Schema of a call's arguments, of type object. Defaults to one text,
	// task.
	Input Schema `yaml:"input"`
}

// Companion is an agent that lives on between calls of another.
type Companion struct {
	// The agent's name.
	Agent string `yaml:"agent,required,short"`
	// Whether the caller waits for the companion's answer (blocking) or goes on and is
	// told of it later (non_blocking). Defaults to blocking.
	Mode string `yaml:"mode,enum=blocking|non_blocking"`
	// What it is for. Defaults to the agent's own description.
	Description string `yaml:"description"`
}

// Remote is an agent on another server.
type Remote struct {
	// The name that the agent has here: it is called as the tool subagent__NAME. No
	// other agent may have it, but several may call the same remote.
	Name string `yaml:"name,required"`
	// The address of the server.
	URL string `yaml:"url,required"`
	// The bearer token for the server.
	Token string `yaml:"token"`
	// The agent's name on that server. Defaults to the name here.
	Agent string `yaml:"agent"`
	// What to call it for.
	Description string `yaml:"description"`
	// The JSON Schema of a call's arguments, of type object. Defaults to one text,
	// task.
	Input Schema `yaml:"input"`
	// How long a request to the server may take, if it is not a stream. Defaults to 20s.
	Timeout Duration `yaml:"timeout"`
	// How long the server may be out of reach before a call fails. Defaults to what the
	// runtime allows.
	Reach Duration `yaml:"reach"`
}

// Tool is something that agents may call.
type Tool struct {
	// Name is the tool's key in the file.
	Name string `yaml:"-"`
	// What carries the tool out: http, a request to a web service; client, whoever
	// talks to the agent, such as a browser; builtin, a tool that Helix has.
	Type string `yaml:"type,required,enum=http|client|builtin"`
	// What the tool does and when to use it, for the model. Builtin tools have one.
	Description string `yaml:"description"`
	// The JSON Schema of the arguments, of type object. Arguments that it does not declare
	// are refused, at any depth, unless it says additionalProperties: true there. Defaults
	// to no arguments; builtin tools have their own.
	Input Schema `yaml:"input"`
	// Whether the tool has no effect, so that it may run again at any time. Defaults to
	// true for http with the methods GET and HEAD.
	ReadOnly *bool `yaml:"readOnly"`
	// Whether the tool has an effect but may be asked for it again, because the service
	// knows the Idempotency-Key header that every attempt of a call has the same of.
	Idempotent *bool `yaml:"idempotent"`
	// Which calls a person must approve: always, never, or a CEL expression over input
	// and user, as in input.amount > 100. An argument of type integer is an int there,
	// and one of type number a double. An expression that fails means yes. Defaults to
	// never, except for the builtin forget.
	Approval Expression `yaml:"approval,approval"`
	// Who may approve a call, or give a client tool's result: a CEL expression over
	// input, user, who answers, and owner, the id of the user whose session it is, as
	// in user.id != owner. One that fails means no. Defaults to everybody who may see
	// the session.
	Approvers Expression `yaml:"approvers,approvers"`
	// How long a call waits for a person, or never for no limit. Defaults to 24h.
	Deadline Duration `yaml:"deadline,never"`

	// Of http: the method. Defaults to GET.
	Method string `yaml:"method,enum=GET|HEAD|POST|PUT|PATCH|DELETE"`
	// Of http: the address. {name} in its path or query is replaced by the argument of
	// that name, escaped. {user.id}, {user.tenant} and {session.id} there are what the
	// server knows of the session: the model cannot set them.
	URL string `yaml:"url"`
	// Of http: headers to send. They are never shown. {user.id}, {user.tenant} and
	// {session.id} in a value are replaced as in url.
	Headers map[string]string `yaml:"headers"`
	// Of http: what to send as JSON. A text that is {name} becomes the argument of that
	// name, and {name} in a longer one its text; {user.id}, {user.tenant} and {session.id}
	// are replaced, too. Defaults to the arguments that are not in the url; with GET, HEAD
	// and DELETE those are in the query instead.
	Body JSON `yaml:"body"`
	// Of http: how long one attempt may take. Defaults to 30s.
	Timeout Duration `yaml:"timeout"`
	// Of http: how often a failed attempt is made again, if the tool is readOnly or
	// idempotent. Defaults to 2 for those.
	Retries *int `yaml:"retries,min=0,max=10"`
	// Of http: the largest response in bytes. Defaults to 262144.
	MaxResponse int `yaml:"maxResponse,min=1,max=1000000"`
	// Of http: whether the service may have an address of a private network or of this
	// machine.
	AllowPrivate bool `yaml:"allowPrivate"`

	// Of builtin: which one. time tells the time; calculator calculates; wait lets up to
	// 60 seconds pass, in the place of work that takes its time; remember, recall and
	// forget keep notes in the session's state.
	Builtin string `yaml:"builtin,enum=time|calculator|wait|remember|recall|forget"`
}

// Server is how the server is reached.
type Server struct {
	// The address to listen on. Defaults to 127.0.0.1:4170.
	Addr string `yaml:"addr"`
	// The bearer tokens that are accepted, and whose they are. A change takes effect when
	// the file is saved; what else the file says about the server, the store, the
	// streams, the runtime and the clean-up needs a restart.
	Tokens []Token `yaml:"tokens"`
	// Whether everybody is let in who can reach the server, all as the same user, instead of
	// those with a token. Without tokens the server refuses to start unless this is true.
	AllowUnauthenticated bool `yaml:"allowUnauthenticated"`
	// The names that the server goes by, without ports, or * for any; a request for another
	// is refused. Defaults to any, but without tokens to this machine's own, so that no web
	// page can have its name point here.
	Hosts []string `yaml:"hosts"`
	// The origins of web pages that may use the server, such as https://app.example.com.
	// Defaults to none but its own.
	CORS []string `yaml:"cors"`
	// Bounds of what a client may ask for.
	Limits Limits `yaml:"limits"`
	// How many requests a user may make.
	RateLimit RateLimit `yaml:"rateLimit"`
	// Whether errors are told in detail, for development.
	Verbose bool `yaml:"verbose"`
}

// Token is a bearer token and whose it is.
type Token struct {
	// The token, of at least 16 characters. Write it as ${NAME}, not into the file.
	Token string `yaml:"token,required"`
	// The user that the token stands for. Only an operator's may have none.
	User string `yaml:"user"`
	// The user's tenant. Defaults to the default tenant.
	Tenant string `yaml:"tenant"`
	// Whether the user may see and operate all sessions of the tenant.
	Operator bool `yaml:"operator"`
}

// Limits bound what a client may ask for.
type Limits struct {
	// The largest request body in bytes. Defaults to 4194304.
	Body int64 `yaml:"body,min=1024"`
	// The most bytes of request bodies that are held at the same time, over all requests,
	// while they arrive and are decoded. One user's requests hold at most a quarter of it,
	// or one body. A request that finds no room waits for up to readTimeout and is then
	// refused with 503. Bodies of up to 64 KiB do not count. Defaults to 67108864, or to
	// one body if that is more.
	Buffered int64 `yaml:"buffered,min=1024"`
	// The most tags that a request may give a session. Defaults to 64.
	Tags int `yaml:"tags,min=1,max=64"`
	// The most metadata entries that a request may give a session. Defaults to 64.
	Metadata int `yaml:"metadata,min=1,max=64"`
	// The most keys of initial state that a request may give a session. Defaults to 1000.
	StateKeys int `yaml:"stateKeys,min=1"`
	// The most messages that a turn may begin with, except in a chat, whose client sends
	// the whole conversation. Defaults to 100.
	Messages int `yaml:"messages,min=1"`
	// The most parts, which are texts and files, of all these messages, and of the last
	// message of a chat. Defaults to 1000.
	Parts int `yaml:"parts,min=1"`
	// Whether files in messages must be sent along as data URLs. Without it a message may
	// also name files by URLs that begin with https, which the model's provider fetches.
	RefuseRemoteFiles bool `yaml:"refuseRemoteFiles"`
	// How long a request's body may take to arrive. Defaults to 30s.
	ReadTimeout Duration `yaml:"readTimeout"`
	// How long the reader of a stream may take to read what it is sent before it is cut off;
	// one that takes nothing is cut off after three times as long. Defaults to 10s.
	WriteTimeout Duration `yaml:"writeTimeout"`
	// How long a change, such as a start, may take. Defaults to 30s.
	Operation Duration `yaml:"operation"`
	// The most streams that are open at the same time. Defaults to 10000.
	Streams int `yaml:"streams,min=1"`
	// The most of them that are open for one user. Defaults to 100.
	StreamsPerUser int `yaml:"streamsPerUser,min=1"`
	// The most runs that one user has at once, over all servers of the store, or
	// unlimited. Without tokens, the most that there are. Defaults to 20.
	RunsPerUser Limit `yaml:"runsPerUser,min=1"`
	// The most bytes of one page of messages, and of the messages of a chat that a page
	// is opened with. Defaults to 4194304.
	PageBytes int64 `yaml:"pageBytes,min=65536"`
}

// RateLimit is how many requests a user may make, of each server. Without tokens it is
// for everybody together.
type RateLimit struct {
	// Requests per second, in the long run, or unlimited. Defaults to 10.
	PerSecond Rate `yaml:"perSecond,min=0.001"`
	// Requests at once. Defaults to what five seconds allow.
	Burst int `yaml:"burst,min=1"`
}

// Runtime is where turns run, and how runs are held on to and recovered.
type Runtime struct {
	// What drives turns: local, the server's own process; temporal, a Temporal server,
	// for which any number of processes work; dbos, workflows that DBOS keeps in a
	// database. Defaults to local.
	Kind string `yaml:"kind,enum=local|temporal|dbos"`
	// How long a session stays with a process that no longer shows signs of life.
	// Defaults to 30s.
	LeaseTTL Duration `yaml:"leaseTTL"`
	// How often orphaned runs, deadlines, wakes and expired sessions of the file's
	// agents are looked for. Defaults to 5s.
	Sweep Duration `yaml:"sweep"`
	// How often a model call that failed for a passing reason is made again. Defaults
	// to 3.
	ModelRetries *int `yaml:"modelRetries,min=0,max=20"`
	// How large a session may become in bytes, messages and stream together, or unlimited.
	// Beyond that it takes no new message, and a run fails before its next model call.
	// Defaults to 67108864.
	SessionBytes Limit `yaml:"sessionBytes,min=65536"`
	// How many chunks a stream keeps. The oldest go once a step is committed that has
	// made them more; a reader that is behind is told so. Defaults to 0, which keeps
	// all.
	MaxChunks int `yaml:"maxChunks,min=0"`
	// Of temporal: where the server is, and how it is worked for.
	Temporal Temporal `yaml:"temporal"`
	// Of dbos: where it keeps its workflows, and who works on them.
	DBOS DBOS `yaml:"dbos"`
}

// Temporal is a Temporal server and how it is worked for. What else there is to
// say about the connection, such as certificates for TLS, comes from the variables
// and the file that Temporal's own command line uses (TEMPORAL_TLS_CLIENT_CERT_PATH
// and others).
type Temporal struct {
	// The address of the server. Defaults to $TEMPORAL_ADDRESS, or else 127.0.0.1:7233.
	Address string `yaml:"address"`
	// The namespace in it. Defaults to $TEMPORAL_NAMESPACE, or else default.
	Namespace string `yaml:"namespace"`
	// The API key, which implies TLS. Defaults to $TEMPORAL_API_KEY. Write it as ${NAME},
	// not into the file.
	APIKey string `yaml:"apiKey"`
	// Where the processes of a deployment share work. All that have the same one must
	// have the same store, and agents of the same names. Defaults to helix.
	TaskQueue string `yaml:"taskQueue"`
	// What the ids of workflows begin with. Defaults to the task queue.
	Prefix string `yaml:"prefix"`
	// Whether helix serve works on turns, too, or only starts them and leaves them to
	// helix worker. Defaults to true.
	Worker *bool `yaml:"worker"`
	// How long a process may be silent before another goes on with its turns, at least
	// 1s. Defaults to 15s.
	WorkerTimeout Duration `yaml:"workerTimeout"`
	// How many effects, such as calls of models and tools, a process works on at the
	// same time. Defaults to 1000.
	MaxEffects int `yaml:"maxEffects,min=1"`
}

// DBOS is where DBOS keeps its workflows, and who works on them.
type DBOS struct {
	// The database: a Postgres URL, or sqlite:PATH. Defaults to the store, if that is a
	// Postgres; beside a SQLite store, to a file next to it whose name ends in -dbos.db.
	Database string `yaml:"database"`
	// The schema of its tables on Postgres. Defaults to dbos, or, where the store has a
	// schema=NAME, to NAME_dbos.
	Schema string `yaml:"schema"`
	// What the ids of workflows begin with. Processes with the same one in the same
	// schema work together: they must have the same store, and agents of the same names.
	// It has 3 to 64 lower-case letters, digits, dashes and underscores. Defaults to
	// helix.
	Prefix string `yaml:"prefix"`
	// What tells a process from all others that run, such as ${HOSTNAME}. One that is
	// started under the id of another that has died goes on with its turns at once;
	// others go on with them when their leases have expired. Defaults to a new one at
	// every start.
	ExecutorID string `yaml:"executorId"`
	// Has turns wait in a queue that all processes serve. Without one, a turn runs at
	// once, in the process that was asked for it.
	Queue *Queue `yaml:"queue"`
	// How long the record of a turn that has ended is kept, or never to keep it for
	// ever. Defaults to 7d.
	Retention Duration `yaml:"retention,never"`
}

// Queue is a queue of turns. Agents that a turn calls are part of it.
type Queue struct {
	// The most turns that run at the same time, in all processes. Defaults to no limit.
	Concurrency int `yaml:"concurrency,min=1"`
	// The most of them that run in one process. Defaults to no limit.
	WorkerConcurrency int `yaml:"workerConcurrency,min=1"`
	// The most turns that begin within the ratePeriod, in all processes. Defaults to no
	// limit.
	RateLimit int `yaml:"rateLimit,min=1"`
	// The period of the rateLimit. Defaults to 1s.
	RatePeriod Duration `yaml:"ratePeriod"`
	// How often a process looks for turns that wait. Defaults to 100ms.
	Poll Duration `yaml:"poll"`
}

// Cleanup is what is done about expired sessions beside the runtime's sweep.
type Cleanup struct {
	// How often every expired session of the store is failed, also of agents that are
	// not in the file, with a line in the log that says what that came to. Defaults to
	// never: the runtime's sweep fails those of the file's agents, and helix cleanup
	// all when it is called.
	Every Duration `yaml:"every"`
}

// JSON is a value of any form, as JSON.
type JSON json.RawMessage

// Schema is a JSON Schema.
type Schema json.RawMessage

// Duration is a time such as 90s, 1h30m or 7d.
type Duration time.Duration

// Limit is a number, or unlimited.
type Limit int

// Rate is a number, also with a fraction, or unlimited.
type Rate float64

// Expression is a CEL expression that is true or false.
type Expression string
