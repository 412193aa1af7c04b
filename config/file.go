package config

import (
	"encoding/json"
	"time"
)

// The comments in this file are the reference of helix.yaml: a test copies them to
// schema.json and docs/helix-yaml.md.

// File is a valid helix.yaml.
type File struct {
	// The version of the format, which is 1.
	Version int `yaml:"version,required"`
	// The models that agents can use, by name. A model is a reference, or a mapping with
	// settings.
	Models []Model `yaml:"models,named"`
	// The agents, by name. A chat that names no agent gets the first one that is not
	// internal.
	Agents []Agent `yaml:"agents,named,required"`
	// The tools that agents can use, by the names that models see.
	Tools []Tool `yaml:"tools,named"`
	// The skills that agents can use: instructions that an agent reads when a task needs them.
	Skills Skills `yaml:"skills"`
	// The address of the server, and who may use it.
	Server Server `yaml:"server"`
	// Where sessions are stored: a path or sqlite:PATH, postgres://…, redis://… or memory:.
	// Defaults to a file in the user's data directory.
	Store string `yaml:"store"`
	// Where streams are stored, if not with the sessions: an address as in store.
	Streams string `yaml:"streams"`
	// Where turns run, and how runs are leased and recovered.
	Runtime Runtime `yaml:"runtime"`
	// How expired sessions are cleaned up, in addition to the runtime's own sweep.
	Cleanup Cleanup `yaml:"cleanup"`

	source *source
}

// Model is a language model with its settings.
type Model struct {
	// Name is the model's key in the file.
	Name string `yaml:"-"`
	// The model to use: provider/model, with one of the providers openai, openai-chat,
	// anthropic and gemini, as in anthropic/claude-sonnet-4-5. After an @ follows the
	// address of another server with the provider's API, as in
	// openai-chat/llama3.2:3b@http://127.0.0.1:11434/v1. Or demo, the scripted model that
	// needs no key. Or auto, a model of the first provider whose key is in the environment,
	// and demo without one.
	Model string `yaml:"model,required"`
	// Models to try in this order if this one fails and a retry would not help: references
	// as in model. They have the same settings, but not the key, headers and options, which
	// are for this model's server.
	Fallbacks []string `yaml:"fallbacks"`
	// The API key. Defaults to the provider's environment variable, such as OPENAI_API_KEY,
	// or to HELIX_MODEL_KEY if the reference has an address. Write it as ${NAME}, not into
	// the file.
	Key string `yaml:"key"`
	// How much the model varies its words. 0 is the least.
	Temperature *float64 `yaml:"temperature,min=0,max=2"`
	// The maximum number of tokens of a reply. Defaults to the provider's limit.
	MaxTokens int `yaml:"maxTokens,min=1"`
	// Restricts each word to the most likely ones that together have this probability.
	TopP *float64 `yaml:"topP,min=0,max=1"`
	// Restricts each word to this many of the most likely ones.
	TopK *int `yaml:"topK,min=1"`
	// How strongly the model avoids words that it has used.
	PresencePenalty *float64 `yaml:"presencePenalty,min=-2,max=2"`
	// How strongly the model avoids words, the more often it has used them.
	FrequencyPenalty *float64 `yaml:"frequencyPenalty,min=-2,max=2"`
	// Makes replies as repeatable as the provider can.
	Seed *int64 `yaml:"seed"`
	// Texts at which a reply ends.
	Stop []string `yaml:"stop"`
	// Headers that are sent with every request to this model, for gateways.
	Headers map[string]string `yaml:"headers"`
	// Settings of this provider, passed on unchanged.
	Options JSON `yaml:"options,object"`
	// Whether the provider should cache the constant part of the prompt.
	Cache bool `yaml:"cache"`
	// The size of this model's context window in tokens, for agents.NAME.context.fraction.
	// Defaults to what the provider's pages say of the model, or to 0, which is not known.
	Window int `yaml:"window,min=1"`
	// How long one attempt of a model call may take. Defaults to 10m.
	Timeout Duration `yaml:"timeout"`
	// The pause of the demo model before each word. Defaults to 30ms.
	Pace *Duration `yaml:"pace"`
}

// Agent is an agent.
type Agent struct {
	// Name is the agent's key in the file.
	Name string `yaml:"-"`
	// What the agent is for. People see it in lists, and other agents when they choose an
	// agent to call.
	Description string `yaml:"description"`
	// The system prompt: who the agent is, what it does and how.
	Instructions string `yaml:"instructions"`
	// Whether only other agents may call the agent: it is not listed, and no user can start,
	// resume or branch its sessions. At least one agent must not be internal. Defaults to
	// false.
	Internal bool `yaml:"internal"`
	// The name of one of the models, or a reference as in models.NAME.model. Defaults to the
	// model named default, or to the only one.
	Model string `yaml:"model"`
	// The names of the tools that the agent may call.
	Tools []string `yaml:"tools"`
	// The skills that the agent may load: all, a list of names, or a mapping with more
	// settings. Defaults to none.
	Skills AgentSkills `yaml:"skills"`
	// The maximum number of model calls per turn, or unlimited. Defaults to 50.
	MaxSteps Limit `yaml:"maxSteps,min=1"`
	// How the conversation is kept within the model's context window, or off: the model is
	// sent all of it, however long. An empty mapping, {}, has all defaults. Defaults to off.
	Context *Context `yaml:"context,off"`
	// The JSON Schema of the agent's result, of type object. With it, the agent finishes a
	// turn with such a value.
	Output Schema `yaml:"output"`
	// The initial custom state of a session.
	State JSON `yaml:"state,object"`
	// The keys of the state that users may set when they start a session. Operators may
	// set every key. Defaults to none.
	OpenState []string `yaml:"openState"`
	// Agents that this one may call as tools, each call in its own session: names, or
	// mappings with more settings.
	SubAgents []SubAgent `yaml:"subAgents"`
	// Agents whose sessions outlive a call: names, or mappings with a mode.
	Companions []Companion `yaml:"companions"`
	// Agents on other servers that this one may call as tools.
	Remotes []Remote `yaml:"remotes"`
	// How long a session may wait for an answer, or stay interrupted, before it expires,
	// counted from the end of its last run or from the last answer. Defaults to never.
	SessionExpiry Duration `yaml:"sessionExpiry"`
}

// Context says when a conversation is compacted, and how. People keep seeing all of it.
type Context struct {
	// The number of messages from which on the conversation is compacted, or never, which
	// suits agents that call many tools. Hidden messages do not count. Defaults to 50.
	Messages Limit `yaml:"messages,never,min=2"`
	// The size of the prompt in tokens from which on it is, or never. Defaults to 80000.
	Tokens Limit `yaml:"tokens,never,min=1"`
	// The share of the model's context window from which on it is, or never, if the window is
	// known: see models.NAME.window. Defaults to 0.85.
	Fraction Rate `yaml:"fraction,never,min=0.01,max=1"`
	// How many of the last messages stay as they are. Must be less than messages. Defaults
	// to 20.
	Keep int `yaml:"keep,min=1"`
	// In place of keep: the last messages that have together at most this many tokens stay.
	// Must be less than tokens.
	KeepTokens int `yaml:"keepTokens,min=1"`
	// The model that writes summaries: the name of one of the models, or a reference as in
	// models.NAME.model. Defaults to the agent's model.
	Model string `yaml:"model"`
	// What asks for a summary. {messages} in it is the conversation as text, and {previous}
	// the summary before. Defaults to a prompt that asks for the user's intent, a summary,
	// artefacts and next steps.
	Prompt string `yaml:"prompt"`
	// To how many bytes large arguments and results of earlier calls are cut, which is tried
	// before a summary.
	Trim Trim `yaml:"trim"`
	// How many bytes the result of a call may have. A larger one is stored beside the
	// session; the model is sent its beginning and its end, and reads the rest with the tool
	// read_result. 80000 is a good number. Defaults to none: all results are sent whole.
	Evict int `yaml:"evict,min=1000"`
	// Names of tools whose results are never stored beside the session.
	EvictExcept []string `yaml:"evictExcept"`
}

// Trim says to how many bytes earlier calls are cut.
type Trim struct {
	// The maximum size of a call's arguments, or never to send them whole. Defaults to 2000.
	Arguments Limit `yaml:"arguments,never,min=200"`
	// The maximum size of a call's result, or never to send it whole. Defaults to 4000.
	Results Limit `yaml:"results,never,min=200"`
}

// AgentSkills are the skills of an agent.
type AgentSkills struct {
	// The names of the skills that the agent may load. Defaults to all.
	Only []string `yaml:"only"`
	// The names of skills that are part of the agent's instructions from the start.
	Preload []string `yaml:"preload"`
	// What the tools mean that a skill lists as allowed-tools: tell tells the model about
	// them; restrict also refuses calls of other tools, from the call that loads the skill
	// until the next message of the user. Neither permits a call that needs an approval.
	// Defaults to tell.
	AllowedTools string `yaml:"allowedTools,enum=tell|restrict"`
}

// SubAgent is an agent that another may call.
type SubAgent struct {
	// The agent's name.
	Agent string `yaml:"agent,required,short"`
	// When to call the agent, for the model. Defaults to the agent's description.
	Description string `yaml:"description"`
	// The JSON Schema of a call's arguments, of type object. Defaults to one string, task.
	Input Schema `yaml:"input"`
}

// Companion is an agent whose session outlives a call.
type Companion struct {
	// The agent's name.
	Agent string `yaml:"agent,required,short"`
	// Whether the caller waits for the companion's answer (blocking), or continues and
	// receives it later (non_blocking). Defaults to blocking.
	Mode string `yaml:"mode,enum=blocking|non_blocking"`
	// What the companion is for, for the model. Defaults to the agent's description.
	Description string `yaml:"description"`
}

// Remote is an agent on another server.
type Remote struct {
	// The local name of the agent: it is called as the tool subagent__NAME. No other agent
	// may have this name, but several agents may call the same remote.
	Name string `yaml:"name,required"`
	// The address of the server.
	URL string `yaml:"url,required"`
	// The bearer token for the server.
	Token string `yaml:"token"`
	// The agent's name on that server. Defaults to the local name.
	Agent string `yaml:"agent"`
	// When to call the agent, for the model.
	Description string `yaml:"description"`
	// The JSON Schema of a call's arguments, of type object. Defaults to one string, task.
	Input Schema `yaml:"input"`
	// How long a request to the server may take, except for streams. Defaults to 20s.
	Timeout Duration `yaml:"timeout"`
	// How long the server may be unreachable before a call fails. Defaults to the runtime's
	// setting.
	Reach Duration `yaml:"reach"`
}

// Tool is something that agents may call.
type Tool struct {
	// Name is the tool's key in the file.
	Name string `yaml:"-"`
	// What runs the tool: http, a request to a web service; client, the client that talks to
	// the agent, such as a browser; builtin, a tool of Helix.
	Type string `yaml:"type,required,enum=http|client|builtin"`
	// What the tool does and when to use it, for the model. Builtin tools have one.
	Description string `yaml:"description"`
	// The JSON Schema of the arguments, of type object. Arguments that it does not declare
	// are refused at any depth, unless it sets additionalProperties: true there. Defaults to
	// no arguments; builtin tools have their own.
	Input Schema `yaml:"input"`
	// Whether the tool has no side effects, so that a call may run again at any time.
	// Defaults to true for http with the methods GET and HEAD.
	ReadOnly *bool `yaml:"readOnly"`
	// Whether a call with side effects may run again, because the service recognizes
	// repeated requests: every attempt of a call sends the same Idempotency-Key header.
	Idempotent *bool `yaml:"idempotent"`
	// Which calls a person must approve: always, never, or a CEL expression over input and
	// user, as in input.amount > 100. In it, an argument of type integer is an int, and one
	// of type number a double. If the expression fails, approval is required. Defaults to
	// never, except for the builtin forget.
	Approval Expression `yaml:"approval,approval"`
	// Who may approve a call, or give a client tool's result: a CEL expression over input,
	// user (the one who answers) and owner (the id of the session's user), as in user.id !=
	// owner. If the expression fails, the answer is refused. Defaults to everybody who may
	// see the session. Nobody else can answer: a user sees their own sessions, and an
	// operator, who has a token with operator: true, those of all users.
	Approvers Expression `yaml:"approvers,approvers"`
	// How long a call waits for a person, or never for no limit. Defaults to 24h.
	Deadline Duration `yaml:"deadline,never"`

	// For http: the method. Defaults to GET.
	Method string `yaml:"method,enum=GET|HEAD|POST|PUT|PATCH|DELETE"`
	// For http: the address. {name} in its path or query is replaced by the argument of that
	// name, escaped. {user.id}, {user.tenant} and {session.id} are replaced by values of the
	// session, which the model cannot set.
	URL string `yaml:"url"`
	// For http: headers to send. They are never shown. {user.id}, {user.tenant} and
	// {session.id} in a value are replaced as in url.
	Headers map[string]string `yaml:"headers"`
	// For http: the JSON body. The string {name} becomes the argument of that name, and
	// {name} in a longer string becomes its text; {user.id}, {user.tenant} and {session.id}
	// are replaced, too. Defaults to the arguments that are not in the url; with GET, HEAD
	// and DELETE they go into the query instead.
	Body JSON `yaml:"body"`
	// For http: how long one attempt may take. Defaults to 30s.
	Timeout Duration `yaml:"timeout"`
	// For http: how often a failed attempt is retried, if the tool is readOnly or
	// idempotent. Defaults to 2 for those.
	Retries *int `yaml:"retries,min=0,max=10"`
	// For http: the maximum size of the response in bytes. Defaults to 262144.
	MaxResponse int `yaml:"maxResponse,min=1,max=1000000"`
	// For http: whether the service may have an address of a private network or of this
	// machine.
	AllowPrivate bool `yaml:"allowPrivate"`

	// For builtin: the name of the tool. time returns the time; calculator calculates; wait
	// waits for up to 60 seconds, to simulate long work; remember, recall and forget manage
	// notes in the session's state.
	Builtin string `yaml:"builtin,enum=time|calculator|wait|remember|recall|forget"`
}

// Skills says where skills are. Each is a directory with a file SKILL.md.
type Skills struct {
	// Directories that contain skills, at most 6 levels deep. A relative path is relative to
	// this file. If two skills have the same name, the one in the earlier directory counts.
	// Changes of the files take effect with the next turn.
	Dirs []string `yaml:"dirs"`
	// Whether the skills that are part of the program can be used, too, behind those in
	// dirs. Defaults to false.
	Embed bool `yaml:"embed"`
}

// Server configures the HTTP server.
type Server struct {
	// The address to listen on. Defaults to 127.0.0.1:4170.
	Addr string `yaml:"addr"`
	// The accepted bearer tokens and their users. A change takes effect when the file is
	// saved. Other changes of the server, the store, the streams, the runtime and the
	// cleanup need a restart.
	Tokens []Token `yaml:"tokens"`
	// Whether everybody who can reach the server may use it without a token, all as the same
	// user. Without tokens the server refuses to start unless this is true.
	AllowUnauthenticated bool `yaml:"allowUnauthenticated"`
	// The host names of the server, without ports, or * for any. A request for another name
	// is refused. Defaults to any; without tokens, to this machine's names, so that no web
	// page can make its own name point here.
	Hosts []string `yaml:"hosts"`
	// The origins of web pages that may use the server, such as https://app.example.com.
	// Defaults to its own only.
	CORS []string `yaml:"cors"`
	// Limits for the requests of clients.
	Limits Limits `yaml:"limits"`
	// How many requests a user may send.
	RateLimit RateLimit `yaml:"rateLimit"`
	// Whether responses contain the details of errors, for development.
	Verbose bool `yaml:"verbose"`
}

// Token is a bearer token and its user.
type Token struct {
	// The token, of at least 16 characters. Write it as ${NAME}, not into the file.
	Token string `yaml:"token,required"`
	// The user of the token. Only an operator's token may omit it.
	User string `yaml:"user"`
	// The user's tenant. Defaults to the default tenant.
	Tenant string `yaml:"tenant"`
	// Whether the user may see and operate all sessions of the tenant.
	Operator bool `yaml:"operator"`
}

// Limits are limits for the requests of clients.
type Limits struct {
	// The maximum size of a request body in bytes. Defaults to 4194304.
	Body int64 `yaml:"body,min=1024"`
	// The maximum number of bytes of all request bodies that are being received and decoded
	// at the same time. The requests of one user may use a quarter of it, or one body. A
	// request that exceeds it waits for up to readTimeout and is then refused with 503.
	// Bodies of up to 64 KiB do not count. Defaults to 67108864, or to one body if that is
	// more.
	Buffered int64 `yaml:"buffered,min=1024"`
	// The maximum number of tags in a request. Defaults to 64.
	Tags int `yaml:"tags,min=1,max=64"`
	// The maximum number of metadata entries in a request. Defaults to 64.
	Metadata int `yaml:"metadata,min=1,max=64"`
	// The maximum number of keys of initial state in a request. Defaults to 1000.
	StateKeys int `yaml:"stateKeys,min=1"`
	// The maximum number of messages that start a turn, except in a chat, whose client sends
	// the whole conversation. Defaults to 100.
	Messages int `yaml:"messages,min=1"`
	// The maximum number of parts, texts and files, of all these messages, and of the last
	// message of a chat. Defaults to 1000.
	Parts int `yaml:"parts,min=1"`
	// Whether files in messages must be data URLs. Otherwise a message may also contain
	// https URLs, which the model's provider fetches.
	RefuseRemoteFiles bool `yaml:"refuseRemoteFiles"`
	// How long the body of a request may take to arrive. A request that takes longer is
	// refused with 408. Defaults to 30s.
	ReadTimeout Duration `yaml:"readTimeout"`
	// How long the reader of a stream may take to read a chunk of data before it is
	// disconnected; a reader that reads nothing is disconnected after three times as long.
	// Defaults to 10s.
	WriteTimeout Duration `yaml:"writeTimeout"`
	// How long a write operation, such as a start, may take. One that asks a model for a
	// summary may take 7m. Defaults to 30s.
	Operation Duration `yaml:"operation"`
	// The maximum number of open streams. Defaults to 10000.
	Streams int `yaml:"streams,min=1"`
	// The maximum number of open streams per user. Defaults to 100.
	StreamsPerUser int `yaml:"streamsPerUser,min=1"`
	// The maximum number of concurrent runs per user, over all servers of the store, or
	// unlimited. Without tokens it applies to all runs together. Defaults to 20.
	RunsPerUser Limit `yaml:"runsPerUser,min=1"`
	// The maximum size of a page of messages in bytes, and of the messages that a chat loads
	// when it is opened. Defaults to 4194304.
	PageBytes int64 `yaml:"pageBytes,min=65536"`
}

// RateLimit limits the requests of a user to each server. Without tokens it applies to all
// requests together.
type RateLimit struct {
	// Requests per second on average, or unlimited. Defaults to 10.
	PerSecond Rate `yaml:"perSecond,min=0.001"`
	// Requests in a burst. Defaults to the number for five seconds.
	Burst int `yaml:"burst,min=1"`
}

// Runtime selects where turns run, and how runs are leased and recovered.
type Runtime struct {
	// What runs turns: local, the server's own process; temporal, a Temporal server with any
	// number of worker processes; dbos, DBOS workflows in a database. Defaults to local.
	Kind string `yaml:"kind,enum=local|temporal|dbos"`
	// How long a session stays, at least, with a process that no longer renews its lease, and
	// for how long another process must have reached the store before it takes the session
	// over. Defaults to 5s.
	LeaseTTL Duration `yaml:"leaseTTL"`
	// How often the processes look for deadlines, wakes and expired sessions of the file's
	// agents. Defaults to 2s.
	Sweep Duration `yaml:"sweep"`
	// How often a model call with a temporary error is retried. Defaults to 3.
	ModelRetries *int `yaml:"modelRetries,min=0,max=20"`
	// The maximum size of a session in bytes, messages, stream and blobs together, or unlimited. A
	// session that has reached it accepts no new message, and its run fails before the next
	// model call. Defaults to 67108864.
	SessionBytes Limit `yaml:"sessionBytes,min=65536"`
	// How many chunks a stream keeps. When a step is committed, the oldest chunks beyond
	// that number are removed; a reader that is behind gets an error. Defaults to 0, which
	// keeps all.
	MaxChunks int `yaml:"maxChunks,min=0"`
	// How the tasks of extensions, which follow runs, are carried out.
	Tasks Tasks `yaml:"tasks"`
	// For temporal: the server and its workers.
	Temporal Temporal `yaml:"temporal"`
	// For dbos: its database and its workers.
	DBOS DBOS `yaml:"dbos"`
}

// Tasks configures how a process carries out tasks, and what it cleans up with them.
type Tasks struct {
	// How many tasks a process carries out at the same time, and one more for a tenant
	// that has none. 0 leaves them to other processes. Defaults to 4.
	Workers *int `yaml:"workers,min=0,max=1000"`
	// How often a task is tried before it is given up. Defaults to 20.
	MaxAttempts int `yaml:"maxAttempts,min=1"`
	// How long tasks that were given up are kept. Defaults to 720h.
	KeepGivenUp Duration `yaml:"keepGivenUp"`
	// How long the chunks of a stream are kept after a run has ended. Defaults to 0s, which
	// keeps them.
	TrimStreams Duration `yaml:"trimStreams"`
	// How old rows of calls must be that no step will use any more, to be removed. Defaults
	// to 0s, which keeps them.
	CleanCalls Duration `yaml:"cleanCalls"`
}

// Temporal configures the connection to a Temporal server and the worker. Other settings of
// the connection, such as certificates for TLS, are read from the variables and the file of
// Temporal's own command line (TEMPORAL_TLS_CLIENT_CERT_PATH and others).
type Temporal struct {
	// The address of the server. Defaults to $TEMPORAL_ADDRESS or 127.0.0.1:7233.
	Address string `yaml:"address"`
	// The namespace. Defaults to $TEMPORAL_NAMESPACE or default.
	Namespace string `yaml:"namespace"`
	// The API key, which implies TLS. Defaults to $TEMPORAL_API_KEY. Write it as ${NAME},
	// not into the file.
	APIKey string `yaml:"apiKey"`
	// The task queue that the processes of a deployment share. They must have the same
	// store, and agents of the same names. Defaults to helix.
	TaskQueue string `yaml:"taskQueue"`
	// The prefix of workflow ids. Defaults to the task queue.
	Prefix string `yaml:"prefix"`
	// Whether helix serve also runs turns. Otherwise it only starts them, and helix worker
	// runs them. Defaults to true.
	Worker *bool `yaml:"worker"`
	// How long a process may be silent before another process continues its turns, at least
	// 1s. Defaults to 15s.
	WorkerTimeout Duration `yaml:"workerTimeout"`
	// How many effects, such as calls of models and tools, a process runs at the same time.
	// Defaults to 1000.
	MaxEffects int `yaml:"maxEffects,min=1"`
}

// DBOS configures the database of DBOS and the processes that run its workflows.
type DBOS struct {
	// The database: a Postgres URL, or sqlite:PATH. Defaults to the store if it is a
	// Postgres, and for a SQLite store to a file beside it whose name ends in -dbos.db.
	Database string `yaml:"database"`
	// The schema of its tables on Postgres. Defaults to dbos or, if the store has a
	// schema=NAME, to NAME_dbos.
	Schema string `yaml:"schema"`
	// The prefix of workflow ids. Processes with the same prefix in the same schema share
	// work: they must have the same store, and agents of the same names. It has 3 to 64
	// lower-case letters, digits, dashes and underscores. Defaults to helix.
	Prefix string `yaml:"prefix"`
	// An id that is unique among running processes, such as ${HOSTNAME}. A process that
	// starts with the id of a dead one continues its turns at most 5s later, whatever leaseTTL is;
	// other processes continue them when their leases have expired. Defaults to a new id at
	// every start.
	ExecutorID string `yaml:"executorId"`
	// Puts turns into a queue that all processes serve. Without it, a turn runs at once in
	// the process that received the request.
	Queue *Queue `yaml:"queue"`
	// How long the record of a finished turn is kept, or never to keep it forever. Defaults
	// to 7d.
	Retention Duration `yaml:"retention,never"`
}

// Queue is a queue of turns. A turn includes the agents that it calls.
type Queue struct {
	// The maximum number of turns that run at the same time in all processes. Defaults to no
	// limit.
	Concurrency int `yaml:"concurrency,min=1"`
	// The maximum number of turns that run at the same time in one process. Defaults to no
	// limit.
	WorkerConcurrency int `yaml:"workerConcurrency,min=1"`
	// The maximum number of turns that start within the ratePeriod, in all processes.
	// Defaults to no limit.
	RateLimit int `yaml:"rateLimit,min=1"`
	// The period of the rateLimit. Defaults to 1s.
	RatePeriod Duration `yaml:"ratePeriod"`
	// How often a process looks for waiting turns. Defaults to 100ms.
	Poll Duration `yaml:"poll"`
}

// Cleanup configures the cleanup of expired sessions, in addition to the runtime's sweep.
type Cleanup struct {
	// How often all expired sessions of the store are failed, including those of agents that
	// are not in the file, with a line in the log. Defaults to never: the runtime's sweep
	// fails those of the file's agents, and helix cleanup fails all of them on request.
	Every Duration `yaml:"every"`
}

// JSON is any value, as JSON.
type JSON json.RawMessage

// Schema is a JSON Schema.
type Schema json.RawMessage

// Duration is a duration such as 90s, 1h30m or 7d.
type Duration time.Duration

// Limit is a number, or unlimited; for some keys it is called never.
type Limit int

// Rate is a number, possibly with a fraction, or unlimited; for some keys it is called never.
type Rate float64

// Expression is a CEL expression with a boolean result.
type Expression string
