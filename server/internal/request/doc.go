// Package request reads the bodies of requests within bounds.
//
// A body is untrusted and may be large. [Scanner] walks over its JSON without
// building anything: a decoder takes the fields it knows, one at a time, and the
// scanner refuses the body as soon as a list, an object or a text is past its
// limit. So a body never takes much more memory than its own bytes, whatever is in
// it. Errors name the field and the limit.
package request
