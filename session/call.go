package session

import (
	"encoding/json"
	"strconv"
	"time"
)

// CallKind says how a tool call is carried out. The kind is decided once, when the
// model's reply arrives, and recorded, so that a deployment in the middle of a
// turn does not change it. Only a call that asks a question changes its kind.
type CallKind string

// The kinds of calls.
const (
	CallServer    CallKind = "server"
	CallClient    CallKind = "client"
	CallApproval  CallKind = "approval"
	CallSubAgent  CallKind = "subagent"
	CallCompanion CallKind = "companion"
	CallRemote    CallKind = "remote"
	CallFinish    CallKind = "finish"
	// CallQuestion is a call whose tool has asked a person something. It is the one
	// kind that a call changes to, from server or approval; see [Ask].
	CallQuestion CallKind = "question"
)

// CallStatus is the progress of a call of the step in flight.
type CallStatus string

// The states of a call row.
const (
	// CallOpen means that the call has not been started.
	CallOpen CallStatus = "open"
	// CallBegun means that the call was claimed and may have started.
	CallBegun CallStatus = "begun"
	// CallSettled means that the call has a result.
	CallSettled CallStatus = "settled"
)

// Call is the row of one tool call of the step in flight. The reply commit writes
// the row, the engine claims it before the call starts and settles it when the
// call ends, and the results commit moves the result into the transcript and
// deletes the row.
type Call struct {
	// MessageID is the assistant message that made the call.
	MessageID  string     `json:"messageId"`
	ID         string     `json:"callId"`
	Index      int        `json:"index"`
	Tool       string     `json:"tool"`
	Kind       CallKind   `json:"kind"`
	Status     CallStatus `json:"status"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
	Idempotent bool       `json:"idempotent,omitempty"`
	// FinishWith marks a call of phase 2, whose output completes the turn.
	FinishWith bool `json:"finishWith,omitempty"`
	// Serial marks a call that does not run beside other serial calls of the message.
	Serial bool `json:"serial,omitempty"`
	// Child is the session of the agent that the call addresses; Name is the
	// companion's name, as its caller knows it.
	Child string `json:"childSessionId,omitempty"`
	Name  string `json:"childName,omitempty"`
	// Rejected is set when the call was refused as the reply arrived, for an unknown
	// tool or input that does not match the schema. It becomes the call's result.
	Rejected *Error `json:"rejected,omitempty"`
	// Asked is how many questions the call has asked. Memo is what its tool keeps until
	// it is called with the answer; nobody else is shown it. See [Ask].
	Asked int             `json:"asked,omitempty"`
	Memo  json.RawMessage `json:"memo,omitempty"`
	// Result is the tool message, once settled. Writes are the call's changes of
	// custom state.
	Result    *Message  `json:"result,omitempty"`
	Writes    Writes    `json:"writes,omitzero"`
	BegunAt   time.Time `json:"begunAt,omitzero"`
	SettledAt time.Time `json:"settledAt,omitzero"`
	Extra     Extra     `json:"-"`
}

// Check returns an error if the row cannot be stored.
func (c *Call) Check() error {
	if c.MessageID == "" {
		return Invalid("call", "%q needs the id of its assistant message", c.ID)
	}
	if err := CheckKeyID("tool call id", c.ID); err != nil {
		return err
	}
	if err := checkTexts("message id", c.MessageID, "tool", c.Tool); err != nil {
		return err
	}
	switch c.Status {
	case "", CallOpen, CallBegun:
	case CallSettled:
		if c.Result == nil {
			return Invalid("call", "%q is settled without a result", c.ID)
		}
	default:
		return Invalid("call status", "%q is not one of open, begun, settled", c.Status)
	}
	if err := c.checkAsked(); err != nil {
		return err
	}
	if err := c.Writes.Check(); err != nil || c.Result == nil {
		return err
	}
	return c.Result.Check()
}

// Begin fills in the defaults of a row that is written now.
func (c *Call) Begin(now time.Time) {
	if c.Status == "" {
		c.Status = CallOpen
	}
	if c.Status != CallOpen && c.BegunAt.IsZero() {
		c.BegunAt = now
	}
	if c.Status == CallSettled && c.SettledAt.IsZero() {
		c.SettledAt = now
	}
}

// MayRepeat reports whether a call that is found begun may be run again.
func (c *Call) MayRepeat() bool { return c.ReadOnly || c.Idempotent }

type callJSON Call

type versionedCall struct {
	V int `json:"v"`
	callJSON
}

// MarshalJSON implements [json.Marshaler].
func (c Call) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil) }

// AppendJSON appends the call's persisted JSON. The form that a reply commit
// writes is encoded by hand, because every step writes several of them.
func (c *Call) AppendJSON(b []byte) ([]byte, error) {
	if c.Rejected != nil || c.Result != nil || c.Asked != 0 || c.Memo != nil || !c.Writes.Empty() || len(c.Writes.Warnings) > 0 || len(c.Extra) > 0 {
		raw, err := encodeWithExtra(&versionedCall{FormatVersion, callJSON(*c)}, c.Extra)
		return append(b, raw...), err
	}
	b = strconv.AppendInt(append(b, `{"v":`...), FormatVersion, 10)
	b = appendField(b, "messageId", c.MessageID)
	b = appendField(b, "callId", c.ID)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(c.Index), 10)
	b = appendField(b, "tool", c.Tool)
	b = appendField(b, "kind", string(c.Kind))
	b = appendField(b, "status", string(c.Status))
	for _, text := range [...]struct{ name, value string }{{"childSessionId", c.Child}, {"childName", c.Name}} {
		if text.value != "" {
			b = appendField(b, text.name, text.value)
		}
	}
	for _, flag := range [...]struct {
		name string
		set  bool
	}{{"readOnly", c.ReadOnly}, {"idempotent", c.Idempotent}, {"finishWith", c.FinishWith}, {"serial", c.Serial}} {
		if flag.set {
			b = append(append(append(b, `,"`...), flag.name...), `":true`...)
		}
	}
	for _, at := range [...]struct {
		name string
		time time.Time
	}{{"begunAt", c.BegunAt}, {"settledAt", c.SettledAt}} {
		if !at.time.IsZero() {
			b = append(append(append(b, `,"`...), at.name...), `":"`...)
			b = append(at.time.AppendFormat(b, time.RFC3339Nano), '"')
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Call) UnmarshalJSON(data []byte) error {
	var doc versionedCall
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*c = Call(doc.callJSON)
	c.Extra = extra
	return checkFormat("call "+c.ID, doc.V)
}
